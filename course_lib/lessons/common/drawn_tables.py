"""Tables as figures, for slides: cells of text, and claims with their numbers and verdicts."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.common.style import COLOURS, figure

CLAIM_HEADS = ("claim", "published", "measured here", "verdict")
GAP = 1.5  # characters between two columns, because some letters are wider than the mean
MISSING = "–"


def drawn_table(
    heads: Sequence[str], lines: Sequence[Sequence[str]], widths: Sequence[int], size: int = 12, title: str = ""
) -> Figure:
    """Draw rows of text with each cell wrapped at its column's width in characters; verdicts are bold."""
    cells = [[wrapped(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    heights = [max(cell.count("\n") + 1 for cell in line) + 0.5 for line in cells]
    whole, unit = sum(heights) + 1.4, 0.2 * size / 12
    starts = [sum(widths[:i]) + GAP * i for i in range(len(widths))]
    n_characters = starts[-1] + widths[-1]
    fig, (axes,) = figure(width=0.098 * n_characters * size / 12, height=whole * unit)
    axes.axis("off")
    axes.set(xlim=(0, n_characters), ylim=(whole, 0))
    if title:
        axes.set_title(title, loc="left", fontsize=size)
    for head, x in zip(heads, starts, strict=True):
        axes.text(x, 0.7, head, fontsize=size, fontweight="bold", va="center", color=COLOURS[0])
    top = 1.3
    for line, height in zip(cells, heights, strict=True):
        axes.axhline(top, color=COLOURS[4], linewidth=0.8)
        for head, cell, x in zip(heads, line, starts, strict=True):
            weight = "bold" if head == "verdict" else "normal"
            axes.text(x, top + height / 2, cell, fontsize=size, va="center", linespacing=1.15, fontweight=weight)
        top += height
    return fig


def wrapped(text: str, width: int) -> str:
    """Wrap the text into lines of at most `width` characters; numbers stay with their percent sign or error."""
    return textwrap.fill(re.sub(r"(?<=\d) (?=%)|(?<=\d) (?=±)|(?<=±) ", "\N{NO-BREAK SPACE}", text), width)


def drawn_claims(claims: Iterable[Claim], *results: dict[str, Any] | None, title: str = "") -> Figure:
    """Draw claims with the published value, ours and the verdict; without results, the committed ones are used."""
    judged = [claim.judge(*results) for claim in claims]
    lines = [(each.claim.text, each.claim.published_value or MISSING, each.ours, each.words) for each in judged]
    return drawn_table(CLAIM_HEADS, lines, (34, 24, 28, 20), title=title)
