"""The figures of lesson 12 that only the deck shows: bits of a weight, equal bytes, another text, all verdicts."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from course_lib.lessons.capstone import comparisons, estimates, plots
from course_lib.lessons.capstone.tables import NO_LESSON, all_claims, claim_counts
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS, NOT_MEASURED, WORDS
from course_lib.quantization.storage import code_bytes, dense_bytes, grid_bytes, sparse_bytes
from course_lib.sparsity.sizes import bitmap_bytes

ROWS, COLUMNS, GROUP = 1536, 576, 64  # a matrix of an MLP of SmolLM2-135M
WEIGHTS = ROWS * COLUMNS
KEPT = {  # fraction of the weights, bits of a code; 16 without a grid
    "4 bits": (1.0, 4),
    "3 bits": (1.0, 3),
    "2 bits": (1.0, 2),
    "50 %, 16 bits": (0.5, 16),
    "50 %, 4 bits": (0.5, 4),
    "50 %, 3 bits": (0.5, 3),
    "75 %, 4 bits": (0.25, 4),
}
PIECES = {"values": COLOURS[0], "bitmap, row starts": COLOURS[3], "scales, zero points": COLOURS[4]}
VERDICTS = dict(
    zip(
        (*WORDS, NOT_MEASURED),
        (
            *((COLOURS[0], ""), (COLOURS[4], ""), (COLOURS[2], "xx"), (COLOURS[1], "")),
            *((COLOURS[3], "//"), ("white", ".."), ("white", "")),
        ),
        strict=True,
    )
)


def bits_of_pieces(kept: float, bits: int) -> dict[str, float]:
    """Count bits per weight, zero or not; groups of GROUP columns share a scale."""
    n_stored = int(kept * WEIGHTS)
    if bits == 16:
        values, grids, whole = 2 * n_stored, 0, bitmap_bytes(ROWS, COLUMNS, n_stored, 2)
    elif kept == 1:
        grids, whole = grid_bytes(ROWS, COLUMNS, bits, GROUP), dense_bytes(ROWS, COLUMNS, bits, GROUP)
        values = whole - grids
    else:
        grids, whole = grid_bytes(ROWS, COLUMNS, bits, GROUP), sparse_bytes(ROWS, COLUMNS, n_stored, bits, GROUP)
        values = code_bytes(n_stored, bits)
    parts = {"values": values, "bitmap, row starts": whole - values - grids, "scales, zero points": grids}
    return {name: 8 * n_bytes / WEIGHTS for name, n_bytes in parts.items()}


def bits() -> Figure:
    """Plot the bits per weight of several recipes as stacked bars."""
    _fig, (axes,) = figure(width=8.6, height=3.4)
    found = {name: bits_of_pieces(*kept) for name, kept in KEPT.items()}
    for place, parts in enumerate(found.values()):
        low = 0.0
        for piece, size in parts.items():
            look = {"color": PIECES[piece], "edgecolor": "black", "linewidth": 0.7}
            axes.bar(place, size, 0.62, low, label="" if place else piece, **look)
            low += size
        axes.text(place, low + 0.12, f"{low:.2f}", ha="center", fontsize=10)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylim(0, 10)
    axes.legend(frameon=False, fontsize=10)
    half, three = (sum(found[name].values()) for name in ("50 %, 4 bits", "3 bits"))
    title = f"Half of the weights at 4 bits take {half:.2f} bits per weight, all of them at 3 bits {three:.2f}"
    return label(axes, title, "zeros and bits of a code, groups of 64", "bits per weight").figure


def equal_bytes(recipes: Sequence[Row] | None = None) -> Figure:
    """Plot how much lower the loss is with zeros and more bits than with fewer bits for all weights."""
    found = comparisons.equal_bytes(estimates.recipes() if recipes is None else recipes)
    fig, (axes,) = figure(width=8.8, height=0.34 * len(found) + 1.4)
    for place, effect in enumerate(found.values()):
        axes.errorbar(effect.value, -place, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks([-place for place in range(len(found))], list(found), fontsize=9)
    axes.set_ylim(0.6 - len(found), 0.6)
    better, worse = sum(effect.holds for effect in found.values()), sum(effect.fails for effect in found.values())
    title = f"Zeros and more bits: clearly better in {better} of {len(found)} cases of equal bytes, worse in {worse}"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(axes, "", f"loss with fewer bits minus loss with zeros, nats per token\n({ERROR_BARS})")
    return fig


def front_on_boolq() -> Figure:
    """Plot the Pareto front on the other text."""
    return plots.pareto_front(domain="boolq")


def verdicts() -> Figure:
    """Plot one bar per lesson with its claims by verdict; claims that are not measured have no lesson."""
    fig, (axes,) = figure(width=9.0, height=4.0)
    lessons = sorted({each.lesson for each in all_claims()} - {NO_LESSON})
    left = dict.fromkeys(lessons, 0)
    for word, (colour, hatch) in VERDICTS.items():
        sizes = [claim_counts(lesson)[word] for lesson in lessons]
        look = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.6}
        if any(sizes):
            axes.barh(lessons, sizes, 0.7, list(left.values()), label=word, **look)
        left = {lesson: left[lesson] + size for lesson, size in zip(lessons, sizes, strict=True)}
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    found = claim_counts()
    judged = sum(found[word] for word in WORDS)
    title = f"Of {judged} claims that were judged {found[WORDS[0]]} hold and {found[WORDS[1]]} hold partly"
    others = f"{claim_counts(NO_LESSON)[NOT_MEASURED]} more, of no lesson, are not measured"
    label(axes, title, f"claims ({others})", "lesson")
    return fig
