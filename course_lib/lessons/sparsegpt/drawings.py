"""Drawings of lesson 03 that need no model: one layer, orders of columns, lazy updates, and an example by hand."""

from collections.abc import Collection

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from course_lib.lessons.common.style import COLOURS, figure, label, line_style

GREY, PALE = "#d5d9de", "#eef0f3"
BLUE, RED, YELLOW = "#7d9cc0", "#c8553d", "#e9b44c"
Number = float | int


def blank(axes: Axes, width: Number, height: Number) -> Axes:
    axes.axis("off")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    return axes


def draw_box(
    axes: Axes, x: Number, y: Number, width: Number, height: Number, text: str = "", colour: str = PALE
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=COLOURS[0], linewidth=1.2))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=13)


def draw_arrow(axes: Axes, start: tuple[Number, Number], end: tuple[Number, Number], colour: str = "black") -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 16, "linewidth": 1.6, "color": colour}
    axes.add_patch(FancyArrowPatch(start, end, **style))


def one_layer() -> Figure:
    """Draw the same inputs going through the layer and through the pruned layer, and the two outputs to compare."""
    fig, (axes,) = figure(width=9.0, height=3.7)
    blank(axes, 18, 7.4)
    draw_box(axes, 0.3, 2.2, 3.0, 3.0, "$X$\n$N \\times I$\ninputs")
    draw_box(axes, 5.6, 0.4, 3.2, 2.4, "$W$  dense\n$O \\times I$", GREY)
    draw_box(axes, 5.6, 4.6, 3.2, 2.4, "", GREY)
    keep = torch.rand(6, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    for i, j in (~keep).nonzero().tolist():
        axes.add_patch(
            Rectangle((5.6 + 0.4 * j, 4.6 + 0.4 * i), 0.4, 0.4, facecolor="white", edgecolor=GREY, linewidth=0.5)
        )
    axes.text(7.2, 7.3, "$\\widehat{W}$  half zero", ha="center", va="center", fontsize=13)
    draw_box(axes, 11.0, 0.6, 2.4, 2.0, "$X W^\\top$")
    draw_box(axes, 11.0, 4.8, 2.4, 2.0, "$X \\hat{W}^\\top$")
    for y in (1.6, 5.8):
        draw_arrow(axes, (3.4, 3.7), (5.5, y))
        draw_arrow(axes, (8.9, y), (10.9, y))
        draw_arrow(axes, (13.5, y), (15.2, 3.7), RED)
    axes.text(15.3, 3.7, "as close\nas possible", va="center", fontsize=14, color=RED)
    return fig


ROWS, COLUMNS = 4, 8
PRUNED = ((1, 4, 6), (0, 3, 5), (2, 4, 7), (1, 3, 6))  # columns by row
N_FROZEN = 4


def own_orders() -> Figure:
    """Draw which inverses are needed: one per row if each row has its own order, a shared one with one order."""
    fig, (left, right) = figure(2, width=5.6, height=4.6)
    for axes in (left, right):
        blank(axes, 13.4, 9.5)
    for row, pruned in enumerate(PRUNED):
        y = 2 * row + 1.2
        for column in range(COLUMNS):
            is_zero, is_frozen = column in pruned, column < N_FROZEN
            draw_cell(left, column, y, "white" if is_zero else BLUE)
            draw_cell(right, column, y, BLUE if not is_frozen else "white" if is_zero else GREY)
        draw_arrow(left, (8.2, y + 0.5), (9.3, y + 0.5))
        draw_arrow(right, (8.2, y + 0.5), (9.3, 4.7))
        draw_inverse(left, 9.5, y - 0.26, 0.19, pruned)
    draw_inverse(right, 9.5, 3.5, 0.3, range(N_FROZEN))
    left.text(11.5, 5.0, "one inverse\nper row", fontsize=13, va="center")
    right.text(10.7, 6.8, "one inverse\nfor all rows", fontsize=13, va="center", ha="center")
    left.set_title("Each row in its own order: one inverse per row", loc="left", fontsize=14)
    right.set_title("All rows from left to right: one inverse per column", loc="left", fontsize=14)
    return fig


def draw_inverse(axes: Axes, x: Number, y: Number, size: float, removed: Collection[int]) -> None:
    """A small matrix without the rows and columns of the removed inputs."""
    for i in range(COLUMNS):
        for j in range(COLUMNS):
            colour = "white" if i in removed or j in removed else BLUE
            at = x + size * j, y + size * i
            axes.add_patch(Rectangle(at, size, size, facecolor=colour, edgecolor=GREY, linewidth=0.4))


def draw_cell(axes: Axes, x: Number, y: Number, colour: str) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=COLOURS[0], linewidth=0.8))


def by_hand() -> Figure:
    """Plot the error for H = [[2, 1], [1, 2]] and w = (1, 3) without the first weight, with and without an update."""
    fig, (axes,) = figure(width=5.4, height=4.6)
    hessian, trained = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, 3.0])
    updated = torch.tensor([0.0, trained[1] + trained[0] * hessian[0, 1] / hessian[1, 1]])
    x, y = torch.meshgrid(torch.linspace(-0.8, 2.4, 161), torch.linspace(1.8, 4.4, 131), indexing="xy")
    change = torch.stack([x - trained[0], y - trained[1]])
    cost = torch.einsum("iab,ij,jab->ab", change, hessian, change)
    axes.clabel(axes.contour(x, y, cost, levels=[0.5, 1, 1.5, 2, 3], colors=COLOURS[4]), fmt="%g", fontsize=9)
    axes.axvline(0, color=COLOURS[0], linestyle=":", linewidth=1.4)
    removed = torch.tensor([0.0, 3.0])
    costs = [((p - trained) @ hessian @ (p - trained)).item() for p in (removed, updated)]
    names = (
        "trained: (1, 3)",
        f"first removed: (0, 3), error {costs[0]:g}",
        f"and second updated: (0, {updated[1]:g}), error {costs[1]:g}",
    )
    for index, (name, point) in enumerate(zip(names, (trained, removed, updated), strict=True)):
        axes.plot(*point.tolist(), label=name, markersize=10, **line_style(index) | {"linestyle": "none"})
    axes.legend(frameon=True, fontsize=10, loc="lower right")
    label(axes, f"The update saves {100 * (1 - costs[1] / costs[0]):.0f} % of the error", "$w_1$", "$w_2$")
    return fig


def lazy() -> Figure:
    """Draw the columns that are frozen, in the block and after it, and when each update reaches them."""
    fig, (axes,) = figure(width=9.0, height=3.6)
    blank(axes, 18, 7.0)
    for x, width, colour, name in (
        (0.4, 5.2, GREY, "frozen"),
        (5.6, 4.0, BLUE, "the block"),
        (9.6, 8.0, PALE, "columns after the block"),
    ):
        draw_box(axes, x, 1.2, width, 3.6, "", colour)
        axes.text(x + width / 2, 0.6, name, ha="center", va="center", fontsize=14)
    axes.add_patch(Rectangle((6.6, 1.2), 0.4, 3.6, facecolor=YELLOW, edgecolor=COLOURS[0]))
    axes.text(6.8, 5.3, "column $j$", ha="center", va="center", fontsize=13)
    draw_arrow(axes, (7.1, 2.2), (9.5, 2.2))
    axes.text(8.3, 2.9, "now", ha="center", va="center", fontsize=13)
    draw_arrow(axes, (7.6, 6.2), (13.6, 4.9), RED)
    axes.text(7.4, 6.4, "scaled errors $E$ of the block", ha="right", va="center", fontsize=13, color=RED)
    axes.text(
        13.6,
        3.0,
        "once, at the end of the block:\none matrix product",
        ha="center",
        va="center",
        fontsize=13,
        color=RED,
    )
    return fig
