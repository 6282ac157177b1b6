"""Drawings for lesson 02: the units of OBD's recursion, a row of a layer, and what the lesson found as a table.

Dimension key: L units above, I units below.
"""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure

DARK, RED, GREY = COLOURS[0], COLOURS[1], COLOURS[4]
PLAIN = {"arrowstyle": "->", "linewidth": 1.4, "shrinkA": 15, "shrinkB": 15}


def _empty(width: float, height: float, x: tuple[float, float], y: tuple[float, float]) -> tuple[Figure, Axes]:
    fig, (axes,) = figure(width=width, height=height)
    axes.grid(visible=False)
    axes.set_axis_off()
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    return fig, axes


def _unit(axes: Axes, place: tuple[float, float], name: str, filled: bool = False) -> None:
    look = {"markerfacecolor": DARK if filled else "white", "markeredgecolor": DARK, "markersize": 27}
    axes.plot(*place, marker="o", **look)
    axes.annotate(name, place, ha="center", va="center", fontsize=12, color="white" if filled else DARK)


def units() -> Figure:
    """One unit i with what it reads and what reads it: which index of OBD's recursion is which, and where it begins."""
    fig, axes = _empty(8.6, 3.9, (-0.45, 4.5), (-1.75, 1.95))
    below, middle, above = [(0.0, 0.9), (0.0, -0.9)], (1.55, 0.0), [(3.1, 0.9), (3.1, -0.9)]
    for place in below:
        axes.annotate("", middle, place, arrowprops=PLAIN | {"color": GREY})
    for place in above:
        axes.annotate("", place, middle, arrowprops=PLAIN | {"color": GREY})
        axes.annotate("", (4.05, place[1]), place, arrowprops=PLAIN | {"color": GREY, "shrinkB": 0})
        curve = f"arc3,rad={0.28 if place[1] > 0 else -0.28}"
        bent = PLAIN | {"color": RED, "linestyle": "--", "connectionstyle": curve}
        axes.annotate("", middle, place, arrowprops=bent)
    for place, name in [(below[0], "$j$"), (below[1], ""), (above[0], "$l$"), (above[1], "$m$")]:
        _unit(axes, place, name)
    _unit(axes, middle, "$i$", filled=True)
    notes = {
        (0.62, 0.72): "$w_{ij}$",
        (2.38, 0.28): "$w_{li}$",
        (1.28, -0.75): "$a_i = \\sum_j w_{ij} x_j$\n$x_i = f(a_i)$",
        (0.0, 1.42): "$x_j$",
        (0.0, -1.62): "layer below",
        (1.55, -1.62): "unit $i$",
        (3.1, -1.62): "layer above",
    }
    for place, text in notes.items():
        axes.annotate(text, place, ha="center", va="center", fontsize=12)
    both = "$\\partial E / \\partial a_l$, $\\partial^2\\! E / \\partial a_l^2$"
    axes.annotate(both, (2.25, 1.5), color=RED, fontsize=12, ha="center")
    axes.annotate("known at the\noutputs", (4.1, 0.9), fontsize=10, va="center")
    title = "Forward along the solid arrows; derivatives come back along the dashed ones"
    axes.set_title(title, loc="left", fontsize=11)
    return fig


def row_of_a_layer() -> Figure:
    """A row of a weight matrix as a network of its own, and the Gram matrix that all rows share."""
    fig, axes = _empty(8.6, 3.4, (-0.3, 10.6), (-1.2, 4.6))
    for row in range(5):
        for column in range(8):
            colour = RED if row == 1 else "#dfe3e8"
            axes.add_patch(_square(0.4 * column, 3.2 - 0.5 * row, 0.4, 0.5, colour))
    axes.annotate(
        "$W$: each row is one\nlinear output $y = w^\\top x$", (1.6, 0.55), ha="center", va="top", fontsize=11
    )
    for row in range(8):
        for column in range(8):
            shade = "#16324f" if row == column else "#8d99ae" if abs(row - column) < 3 else "#dfe3e8"
            axes.add_patch(_square(4.6 + 0.35 * column, 3.3 - 0.35 * row, 0.35, 0.35, shade))
    axes.annotate(
        "$H = X^\\top X / N$: the same\nfor every row, at the start", (6.0, 0.55), ha="center", va="top", fontsize=11
    )
    for index, gone in enumerate(((1, 5), (0, 2), (4, 7))):
        for column in range(8):
            cell = _square(8.2 + 0.28 * column, 3.2 - 1.05 * index, 0.28, 0.42, "white" if column in gone else RED)
            axes.add_patch(cell)
    axes.annotate("each row deletes other\nweights: $H^{-1}$ differs", (9.3, 0.55), ha="center", va="top", fontsize=11)
    axes.annotate("", (4.45, 2.1), (3.4, 2.1), arrowprops={"arrowstyle": "->", "color": DARK})
    axes.annotate("", (8.05, 2.1), (7.55, 2.1), arrowprops={"arrowstyle": "->", "color": DARK})
    axes.set_title("One row is a small exact problem; rows stop sharing at the first deletion", loc="left", fontsize=11)
    return fig


def _square(x: float, y: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="white" if colour != "white" else GREY)


def table(header: list[str], lines: list[list[str]], widths: list[int], title: str) -> Figure:
    """A table as a figure: columns of so many letters, each cell broken into lines, rules between the rows."""
    cells = [["\n".join(textwrap.wrap(c, w)) for c, w in zip(line, widths, strict=True)] for line in [header, *lines]]
    heights = [max(cell.count("\n") + 1 for cell in line) + 0.7 for line in cells]
    starts = [sum(widths[:i]) + 2 * i for i in range(len(widths))]
    total = sum(heights)
    fig, axes = _empty(
        0.088 * (starts[-1] + widths[-1]), 0.232 * total + 0.3, (0.0, float(starts[-1] + widths[-1])), (total, 0.0)
    )
    top = 0.0
    for number, (line, height) in enumerate(zip(cells, heights, strict=True)):
        for start, cell in zip(starts, line, strict=True):
            weight = "bold" if number == 0 else "normal"
            axes.annotate(
                cell, (start, top + height / 2), va="center", fontsize=11, fontweight=weight, linespacing=1.25
            )
        top += height
        axes.axhline(top, color=DARK if number == 0 else "#dde2e7", linewidth=1.6 if number == 0 else 0.8)
    axes.set_title(title, loc="left", fontsize=11)
    return fig
