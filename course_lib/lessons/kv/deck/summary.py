"""Tables of the deck of lesson 07, drawn as figures, so that each number and each verdict is a computed one."""

import math
import re
import textwrap
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.effects import accuracy_gap, log_gap
from course_lib.lessons.common.style import COLOURS, HouseFigure
from course_lib.lessons.common.tables import load_bench, rows
from course_lib.lessons.common.verdicts import of_count, verdict
from course_lib.lessons.kv import measured as long
from course_lib.lessons.kv import tables
from course_lib.lessons.kv.claims import heavy_shown
from course_lib.lessons.kv.claims.reading import HEAVIEST, RANDOM

Row = tuple[str, ...]
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
    """Claim, paper, here, verdict."""
    head = ("claim", "paper", "here", "verdict")
    body = [_sparse(), _enough(), _masked(), _choosing(), _persistence(), _again()]
    return drawn(head, body, (31, 25, 27, 20))


def _sparse() -> Row:
    layers = rows(long.results(), "attention", start="text")
    count, n = sum(row["sparsity"] > tables.SPARSE for row in layers), len(layers)
    word = verdict(of_count(count, n, tables.ALMOST_ALL), larger_models=True)
    mean = 100 * sum(row["sparsity"] for row in layers) / n
    return (
        "almost all attention is negligible",
        "H2O: over 95 %, almost all layers",
        f"{count} of {n}, mean {mean:.0f} %",
        word,
    )


def _enough() -> Row:
    found = heavy_shown.results()
    (five,) = rows(found, "enough", share=heavy_shown.SUFFICE)
    effect, word = heavy_shown.above_full(five), heavy_shown.enough_verdict(found).rpartition(": ")[2]
    here = f"{math.exp(effect.value):.2f} times the perplexity"
    return "5 % of the tokens are enough", "talk on H2O: 20 times smaller, as accurate", here, word


def _masked() -> Row:
    found = heavy_shown.results()
    share = max(row["share"] for row in found["tables"]["masked"])
    times = {
        which: math.exp(heavy_shown.above_full(rows(found, "masked", which=which, share=share)[0]).value)
        for which in (HEAVIEST, RANDOM)
    }
    word = heavy_shown.masked_verdict(found).splitlines()[0].rpartition(": ")[2]
    here = f"{100 * share:.0f} %: {times[HEAVIEST]:.3g} times, at random {times[RANDOM]:.2f}"
    return "without heavy hitters it is worse", "H2O: significant degradation", here, word


def _choosing() -> Row:
    found = long.results()
    ours = sorted(rows(found, "compressed", policy="H2O"), key=lambda row: row["budget"])
    gains = [log_gap(row, rows(found, "compressed", policy="StreamingLLM", budget=row["budget"])[0]) for row in ours]
    low, high = min(gain.value for gain in gains), max(gain.value for gain in gains)
    here = f"log-perplexity lower by {low:.3f} to {high:.3f}"
    return "heavy hitters beat a window with sinks", "H2O: beats a local window", here, verdict(gains)


def _persistence() -> Row:
    layers = rows(long.results(), "attention", start="text")
    count, n = sum(row["persistence_any"] > tables.PERSISTENT for row in layers), len(layers)
    chance = 100 * torch.tensor([row["pivotal_any"] for row in layers]).mean()
    here = f"{count} of {n}; chance gives {chance:.0f} %"
    return (
        "who mattered will matter",
        "Scissorhands: over 95 %, most layers",
        here,
        verdict(of_count(count, n, tables.MOST)),
    )


def _again() -> Row:
    second = {row["policy"]: row for row in rows(long.results(), "second_needle", question=2)}
    lost = max((second[name] for name in ("StreamingLLM", "H2O", "SnapKV")), key=lambda row: row["exact"])
    ways = {name: row for name, row in second.items() if name.startswith("recycled") and "never" not in name}
    here = ", ".join(f"{name.removeprefix('recycled, ')} {100 * row['exact']:.0f} %" for name, row in ways.items())
    word = verdict([accuracy_gap(row, lost, "exact") for row in ways.values()])
    return "looking again answers a second question", "Recycled attention: 2 times as good", here, word
