"""Drawings of prediction: the predictor beside its MLP, and how early it reads the residual stream."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.dejavu.drawings.parts import PALE, SAND, arrow, blank, box, cell

WIDTH, NEURONS, RANK = 576, 1536, 64  # of SmolLM2-135M's MLP, and of the predictor that is drawn beside it
TO_SCALE = 1 / 250
# (who reads, where it reads, what it chooses): places on the stream and parts, block k first.
VARIANTS = {
    "Figure 2": (("x, before attention k", "MLP k"), ("x', before MLP k", "heads k + 1")),
    "section 4.3": (("x, before attention k", "heads k + 1"), ("x, before attention k", "MLP k + 1")),
    "authors' code": (("x, before attention k", "heads k + 1"), ("x', before MLP k", "MLP k + 1")),
}


def predictor() -> Figure:
    """The two small matrices beside the three large ones, to scale, and the rows that they choose."""
    fig, (axes,) = figure(width=9.6, height=4.2)
    blank(axes, (-2.0, 17.2), (-1.6, 8.6))
    tall, wide, thin = NEURONS * TO_SCALE, WIDTH * TO_SCALE, RANK * TO_SCALE
    box(axes, (-1.8, 3.0), (1.1, 0.9), "x", fontsize=13)
    cell(axes, (1.0, 3.0), (wide, thin), COLOURS[1])
    axes.text(1.0 + wide / 2, 3.6, f"A: {RANK} × {WIDTH}", ha="center", fontsize=10.5)
    cell(axes, (4.8, 0.0), (thin, tall), COLOURS[1])
    axes.text(4.9, tall + 0.3, f"B: {NEURONS} × {RANK}", ha="center", fontsize=10.5)
    box(axes, (6.0, 2.65), (1.9, 1.0), "best k", SAND)
    for start, end in (((-0.6, 3.3), (0.9, 3.13)), ((1.05 + wide, 3.13), (4.7, 3.13)), ((5.15, 3.13), (5.9, 3.13))):
        arrow(axes, start, end)
    for place, name in enumerate(("gate", "up", "down, turned")):
        left = 9.2 + place * (wide + 0.35)
        cell(axes, (left, 0.0), (wide, tall), PALE)
        for row in _rows():
            cell(axes, (left, row * tall), (wide, 0.09), COLOURS[0], linewidth=0)
        axes.text(left + wide / 2, tall + 0.3, name, ha="center", fontsize=10.5)
    for row in _rows():
        arrow(axes, (7.95, 3.15), (9.15, row * tall + 0.05), linewidth=0.8)
    axes.annotate(
        "", (9.2, 7.6), (-1.25, 4.0), arrowprops={"arrowstyle": "->", "connectionstyle": "angle,angleA=90,angleB=0"}
    )
    axes.text(2.5, 7.8, "the same x, for the chosen rows only", fontsize=10.5)
    share = RANK * (WIDTH + NEURONS) / (3 * WIDTH * NEURONS)
    axes.set_title(
        f"To scale: a predictor of rank {RANK} has {100 * share:.1f} % of the MLP's weights", loc="left", fontsize=12
    )
    return fig


def _rows() -> tuple[float, ...]:
    """Where the chosen rows lie, as shares of the height."""
    return (0.06, 0.21, 0.29, 0.52, 0.63, 0.86, 0.93)


PLACES = {"x, before attention k": 0.6, "x', before MLP k": 4.6}
PARTS = {"heads k": 1.5, "MLP k": 5.5, "heads k + 1": 9.5, "MLP k + 1": 13.5}


def lookahead() -> Figure:
    """Two blocks on the residual stream, and where three versions of the method read it."""
    fig, (axes,) = figure(width=10.4, height=4.3)
    blank(axes, (-0.6, 19.0), (-2.9, 6.2))
    arrow(axes, (-0.4, 0), (18.8, 0), linewidth=2.2)
    axes.text(18.7, 0.2, "residual stream", ha="right", fontsize=10.5)
    for name, left in PARTS.items():
        box(axes, (left, -2.4), (2.2, 1.1), name, PALE, fontsize=11.5)
        arrow(axes, (left - 0.2, 0), (left + 0.2, -1.25), linewidth=0.9)
        arrow(axes, (left + 2.0, -1.25), (left + 2.4, -0.05), linewidth=0.9)
    for index, reads in enumerate(VARIANTS.values()):
        for number, (place, part) in enumerate(reads):
            _read(
                axes,
                PLACES[place] + 0.12 * index,
                PARTS[part] + 0.75 + 0.35 * index,
                1.1 + index * 1.7 + 0.75 * number,
                index,
            )
    handles = [
        Line2D([], [], color=COLOURS[i], linestyle=("-", "--", "-.")[i], label=name) for i, name in enumerate(VARIANTS)
    ]
    axes.legend(handles=handles, frameon=False, fontsize=10.5, loc="upper left", bbox_to_anchor=(0.0, 1.03), ncols=3)
    early = [_blocks_early(place, part) for reads in VARIANTS.values() for place, part in reads]
    axes.set_title(
        f"Three versions of one method: {sum(n >= 2 for n in early)} of {len(early)} choices are made a whole block "
        "or more before they are needed",
        loc="left",
        fontsize=12,
    )
    return fig


def _blocks_early(place: str, part: str) -> int:
    """How many parts (an attention or an MLP) write to the stream between where it is read and where it is used."""
    parts, read = list(PARTS), {"x, before attention k": 0, "x', before MLP k": 1}
    return parts.index(part) - read[place]


def _read(axes: Axes, start: float, end: float, height: float, index: int) -> None:
    look = {"color": COLOURS[index], "linestyle": ("-", "--", "-.")[index], "linewidth": 1.6}
    axes.plot((start, start, end), (0, height, height), **look)
    axes.plot(start, 0, "o", color=COLOURS[index], markersize=5)
    arrow(axes, (end, height), (end, -1.25), **look)
