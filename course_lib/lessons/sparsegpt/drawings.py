"""Drawings of the deck of lesson 03 that need no model: what is asked, who shares an inverse, and an example by hand.

Dimension key: O outputs of a layer, I its inputs.
"""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from course_lib.lessons.common.style import COLOURS, figure, label, line_style

GREY, PALE = "#d5d9de", "#eef0f3"
BLUE, RED, YELLOW = "#7d9cc0", "#c8553d", "#e9b44c"


def _blank(axes: Axes, width: float | int, height: float | int) -> Axes:
    axes.axis("off")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    return axes


def _box(
    axes: Axes,
    x: float | int,
    y: float | int,
    width: float | int,
    height: float | int,
    text: str = "",
    colour: str = PALE,
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=COLOURS[0], linewidth=1.2))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=13)


def _arrow(
    axes: Axes, start: tuple[float | int, float | int], end: tuple[float | int, float | int], colour: str = "black"
) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 16, "linewidth": 1.6, "color": colour}
    axes.add_patch(FancyArrowPatch(start, end, **style))


def one_layer() -> Figure:
    """The same inputs through the layer and through the pruned layer; the difference of what they give is the error."""
    fig, (axes,) = figure(width=9.0, height=3.7)
    _blank(axes, 18, 7.4)
    _box(axes, 0.3, 2.2, 3.0, 3.0, "$X$\n$N \\times I$\ninputs")
    _box(axes, 5.6, 0.4, 3.2, 2.4, "$W$  dense\n$O \\times I$", GREY)
    _box(axes, 5.6, 4.6, 3.2, 2.4, "", GREY)
    keep = torch.rand(6, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    for i, j in (~keep).nonzero().tolist():
        axes.add_patch(
            Rectangle((5.6 + 0.4 * j, 4.6 + 0.4 * i), 0.4, 0.4, facecolor="white", edgecolor=GREY, linewidth=0.5)
        )
    axes.text(7.2, 7.3, "$\\widehat{W}$  half zero", ha="center", va="center", fontsize=13)
    _box(axes, 11.0, 0.6, 2.4, 2.0, "$X W^\\top$")
    _box(axes, 11.0, 4.8, 2.4, 2.0, "$X \\hat{W}^\\top$")
    for y in (1.6, 5.8):
        _arrow(axes, (3.4, 3.7), (5.5, y))
        _arrow(axes, (8.9, y), (10.9, y))
        _arrow(axes, (13.5, y), (15.2, 3.7), RED)
    axes.text(15.3, 3.7, "as alike\nas possible", va="center", fontsize=14, color=RED)
    return fig


ROWS, COLUMNS = 4, 8
LEAVE = ((1, 4, 6), (0, 3, 5), (2, 4, 7), (1, 3, 6))


def own_orders() -> Figure:
    """Who must be inverted: with an order for each row, a matrix a row; with one order for all, the same for all."""
    fig, (left, right) = figure(2, width=5.6, height=4.6)
    for axes in (left, right):
        _blank(axes, 13.4, 9.5)
    for row, leave in enumerate(LEAVE):
        for column in range(COLUMNS):
            gone = column in leave
            _cell(left, column, 2 * row + 1.2, "white" if gone else BLUE)
            settled = column < 4
            _cell(right, column, 2 * row + 1.2, "white" if settled and gone else GREY if settled else BLUE)
        _arrow(left, (8.2, 2 * row + 1.7), (9.3, 2 * row + 1.7))
        for i in range(COLUMNS):
            for j in range(COLUMNS):
                colour = "white" if i in leave or j in leave else BLUE
                left.add_patch(
                    Rectangle(
                        (9.5 + 0.22 * j, 2 * row + 0.8 + 0.22 * i),
                        0.22,
                        0.22,
                        facecolor=colour,
                        edgecolor=GREY,
                        linewidth=0.4,
                    )
                )
    left.text(11.5, 5.0, "$(H_{M_i})^{-1}$\none a row", fontsize=13, va="center")
    for row in range(ROWS):
        _arrow(right, (8.2, 2 * row + 1.7), (9.3, 4.7))
    for i in range(COLUMNS):
        for j in range(COLUMNS):
            colour = BLUE if i >= 4 and j >= 4 else "white"
            right.add_patch(
                Rectangle((9.5 + 0.3 * j, 3.5 + 0.3 * i), 0.3, 0.3, facecolor=colour, edgecolor=GREY, linewidth=0.4)
            )
    right.text(10.7, 6.8, "$(H_{U_j})^{-1}$, the same\nfor every row", fontsize=13, va="center", ha="center")
    left.set_title("Each row in its own order: an inverse for each", loc="left", fontsize=14)
    right.set_title("All rows from left to right: one inverse a column", loc="left", fontsize=14)
    return fig


def _cell(axes: Axes, x: float | int, y: float | int, colour: str) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=COLOURS[0], linewidth=0.8))


def by_hand() -> Figure:
    """H = [[2, 1], [1, 2]] and w = (1, 3): what deleting the first weight costs, alone and with the second moved."""
    fig, (axes,) = figure(width=5.4, height=4.6)
    hessian, trained = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, 3.0])
    moved = torch.tensor([0.0, trained[1] + trained[0] * hessian[0, 1] / hessian[1, 1]])
    x, y = torch.meshgrid(torch.linspace(-0.8, 2.4, 161), torch.linspace(1.8, 4.4, 131), indexing="xy")
    change = torch.stack([x - trained[0], y - trained[1]])
    cost = torch.einsum("iab,ij,jab->ab", change, hessian, change)
    axes.clabel(axes.contour(x, y, cost, levels=[0.5, 1, 1.5, 2, 3], colors=COLOURS[4]), fmt="%g", fontsize=9)
    axes.axvline(0, color=COLOURS[0], linestyle=":", linewidth=1.4)
    deleted = torch.tensor([0.0, 3.0])
    costs = [((p - trained) @ hessian @ (p - trained)).item() for p in (deleted, moved)]
    names = (
        "trained: (1, 3)",
        f"deleted: (0, 3), error {costs[0]:g}",
        f"and moved: (0, {moved[1]:g}), error {costs[1]:g}",
    )
    for index, (name, point) in enumerate(zip(names, (trained, deleted, moved), strict=True)):
        axes.plot(*point.tolist(), label=name, markersize=10, **line_style(index) | {"linestyle": "none"})
    axes.legend(frameon=True, fontsize=10, loc="lower right")
    label(axes, f"The update saves {100 * (1 - costs[1] / costs[0]):.0f} % of the error", "$w_1$", "$w_2$")
    return fig


def lazy() -> Figure:
    """Three kinds of columns: settled, in the block, behind it; and which update reaches which, when."""
    fig, (axes,) = figure(width=9.0, height=3.6)
    _blank(axes, 18, 7.0)
    for x, width, colour, name in (
        (0.4, 5.2, GREY, "settled"),
        (5.6, 4.0, BLUE, "the block"),
        (9.6, 8.0, PALE, "behind"),
    ):
        _box(axes, x, 1.2, width, 3.6, "", colour)
        axes.text(x + width / 2, 0.6, name, ha="center", va="center", fontsize=14)
    axes.add_patch(Rectangle((6.6, 1.2), 0.4, 3.6, facecolor=YELLOW, edgecolor=COLOURS[0]))
    axes.text(6.8, 5.3, "column $j$", ha="center", va="center", fontsize=13)
    _arrow(axes, (7.1, 2.2), (9.5, 2.2))
    axes.text(8.3, 2.9, "at once", ha="center", va="center", fontsize=13)
    _arrow(axes, (7.6, 6.2), (13.6, 4.9), RED)
    axes.text(7.4, 6.4, "scaled errors $E$ of the block", ha="right", va="center", fontsize=13, color=RED)
    axes.text(
        13.6, 3.0, "once, at the block's end:\none matrix product", ha="center", va="center", fontsize=13, color=RED
    )
    return fig
