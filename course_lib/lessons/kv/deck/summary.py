"""Tables of the deck of lesson 07, drawn as figures, so that each number and each verdict is a computed one."""

import re
import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.results import load_bench
from course_lib.lessons.common.style import COLOURS, HouseFigure
from course_lib.lessons.kv import claims

Row = tuple[str, ...]
TAKE_HOME = (
    claims.SPARSE,
    claims.FIVE_PER_CENT,
    claims.MASKED,
    claims.THAN_SINKS,
    claims.PERSISTENCE,
    claims.LOOKS_AGAIN,
)
STEPS = r"\d+ steps of \d+ at \d+ tokens"


def drawn(head: Row, body: Sequence[Row], widths: Sequence[int], size: float = 13.0) -> Figure:
    """A table: the first row bold, a line under it; widths are in letters, and longer cells are broken."""
    cells = [[textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)] for row in body]
    heights = [1.15, *(max(len(cell) for cell in row) + 0.35 for row in cells)]
    total, across = sum(heights), sum(widths)
    fig = HouseFigure(figsize=(across * 0.105 * size / 13, total * 0.27 * size / 13))
    axes = fig.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, across)
    axes.set_ylim(total, 0)
    axes.set_axis_off()
    top = 0.0
    for height, row in zip(heights, [[[cell] for cell in head], *cells], strict=True):
        left = 0
        for lines, width in zip(row, widths, strict=True):
            look = {"va": "baseline", "fontweight": "bold", "color": COLOURS[0]} if not top else {"va": "top"}
            at = top + (0.2 if top else 0.85)
            axes.text(left, at, "\n".join(lines), ha="left", fontsize=size, linespacing=1.25, **look)
            left += width
        top += height
        axes.plot([0, across], [top, top], color=COLOURS[0] if top == heights[0] else "#d9dde3", linewidth=1.2)
    return fig


def published() -> Figure:
    """What evicting gains on the machine of the bench, beside the same cache with nothing evicted."""
    by_shape: dict[tuple[int, ...], dict[str, float]] = {}
    for row in load_bench("cpu_kv")["tables"]["sides"]:
        if re.fullmatch(STEPS, row["contest"]):
            by_shape.setdefault(tuple(row["shape"]), {})[row["side"]] = row["times_anchor"]
    body = []
    for side in ("H2O, 20 %", "StreamingLLM, 20 %", "SnapKV, 20 %", "H2O, 20 %, 4 bits"):
        times = (sides[side] / sides[EVERYTHING] for sides in by_shape.values())
        body.append((side, *(f"{each:.2f} times" for each in times)))
    head = ("measured here", *(f"{n_sequences} × {n_tokens} tokens" for n_sequences, n_tokens in by_shape))
    return drawn(head, body, (44, 30, 30))


def take_home() -> Figure:
    """The claims to remember, the published numbers, ours, and the verdicts."""
    return drawn_claims(TAKE_HOME)
