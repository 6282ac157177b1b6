"""Drawings of lesson 05 that measure nothing: what leaves together, width and depth, who teaches whom."""

from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.lessons.common.style import COLOURS, figure

PALE = "#e3e7ec"
WIDTH, NEURONS, KEYS = 5.76, 15.36, 1.92  # of a block of SmolLM2-135M, in hundreds


@dataclass(frozen=True)
class Matrix:
    """A weight matrix to scale, outputs downwards and inputs to the right, and where it stands in the drawing."""

    name: str
    outputs: float
    inputs: float
    left: float | int
    top: float | int


MATRICES = (
    Matrix("q", WIDTH, WIDTH, 0, 0),
    Matrix("k", KEYS, WIDTH, 7.2, 0),
    Matrix("v", KEYS, WIDTH, 14.4, 0),
    Matrix("o", WIDTH, WIDTH, 21.6, 0),
    Matrix("gate", NEURONS, WIDTH, 0, 8.6),
    Matrix("up", NEURONS, WIDTH, 7.2, 8.6),
    Matrix("down", WIDTH, NEURONS, 14.4, 8.6),
)

# Strips that leave: matrix -> (first, last) of the outputs or of the inputs, in hundreds. A head is 64 wide.
ROWS, COLUMNS = "outputs", "inputs"
Strips = dict[str, tuple[str, float, float]]
NEURON: Strips = {"gate": (ROWS, 6.0, 6.25), "up": (ROWS, 6.0, 6.25), "down": (COLUMNS, 6.0, 6.25)}
GROUP: Strips = {
    "q": (ROWS, 1.92, 3.84),
    "k": (ROWS, 0.64, 1.28),
    "v": (ROWS, 0.64, 1.28),
    "o": (COLUMNS, 1.92, 3.84),
}
CHANNEL: Strips = dict.fromkeys(("q", "k", "v", "gate", "up"), (COLUMNS, 3.0, 3.25))
CHANNEL |= dict.fromkeys(("o", "down"), (ROWS, 3.0, 3.25))


def what_leaves() -> Figure:
    """The seven matrices of a block to scale, and the strips of them that leave together, dark."""
    fig, panels = figure(n_columns=3, width=4.3, height=4.0)
    named = {
        "a neuron: two rows, a column": NEURON,
        "a key-value group: its three query heads too": GROUP,
        "a width channel: from all seven": CHANNEL,
    }
    for axes, (name, strips) in zip(panels, named.items(), strict=True):
        _matrices(axes, strips)
        axes.set_title(name, loc="left", fontsize=12)
    fig.suptitle("A neuron or a channel is drawn 25 times as thick as it is", x=0.99, ha="right", fontsize=9)
    return fig


def _matrices(axes: Axes, strips: Strips) -> None:
    for matrix in MATRICES:
        look = {"facecolor": PALE, "edgecolor": COLOURS[4], "linewidth": 0.8}
        axes.add_patch(Rectangle((matrix.left, matrix.top), matrix.inputs, matrix.outputs, **look))
        if matrix.name in strips:
            side, first, last = strips[matrix.name]
            dark = {"facecolor": COLOURS[0]}
            if side == ROWS:
                axes.add_patch(Rectangle((matrix.left, matrix.top + first), matrix.inputs, last - first, **dark))
            else:
                axes.add_patch(Rectangle((matrix.left + first, matrix.top), last - first, matrix.outputs, **dark))
        axes.text(matrix.left, matrix.top - 0.25, matrix.name, fontsize=10, va="bottom")
    axes.text(21.6, 17.0, "outputs ↓\ninputs →", fontsize=9, va="center")
    axes.set(xlim=(-0.4, 30.4), ylim=(24.4, -1.6))
    axes.axis("off")


def before_and_after() -> Figure:
    """The MLP of a block, dense, with zeros, and cut: for the first slide."""
    fig, panels = figure(n_columns=3, width=2.6, height=3.4)
    for axes, name in zip(panels, ("dense", "half zeros", "cut"), strict=True):
        height = NEURONS / 2 if name == "cut" else NEURONS
        axes.add_patch(Rectangle((0, 0), WIDTH, height, facecolor=COLOURS[0]))
        if name == "half zeros":
            zeros = torch.rand(64, 24, generator=torch.Generator().manual_seed(0)) < 0.5
            look = {"cmap": ListedColormap([COLOURS[0], "white"]), "interpolation": "nearest", "aspect": "auto"}
            axes.imshow(zeros, extent=(0, WIDTH, NEURONS, 0), zorder=2, **look)
        axes.add_patch(Rectangle((0, 0), WIDTH, height, fill=False, edgecolor=COLOURS[0], linewidth=1.5))
        axes.set(xlim=(-0.2, WIDTH + 0.2), ylim=(NEURONS + 0.2, -0.2))
        axes.set_title(name, fontsize=13)
        axes.axis("off")
    return fig


def width_and_depth() -> Figure:
    """One budget of parameters, spent in three ways."""
    fig, panels = figure(n_columns=3, width=3.2, height=3.9)
    shapes = {"dense: 30 blocks": (30, 1.0), "fewer neurons": (30, 1126 / 1536), "fewer blocks": (24, 1.0)}
    for axes, (name, (n_blocks, wide)) in zip(panels, shapes.items(), strict=True):
        for number in range(n_blocks):
            axes.add_patch(Rectangle((0, number), 2.4, 0.72, facecolor=COLOURS[4]))
            axes.add_patch(Rectangle((2.6, number), 6.4 * wide, 0.72, facecolor=COLOURS[0]))
        axes.set(xlim=(-0.2, 9.2), ylim=(-0.5, 30.5))
        axes.set_title(name, loc="left", fontsize=13)
        axes.axis("off")
    panels[0].text(0, -0.6, "attention", fontsize=10, va="top", color=COLOURS[4])
    panels[0].text(2.6, -0.6, "MLP", fontsize=10, va="top", color=COLOURS[0])
    return fig


def teacher_and_student() -> Figure:
    """Both models read the same text; the student alone learns."""
    fig, (axes,) = figure(width=9.2, height=3.2)
    boxes = {
        "text": (0.0, 1.0, "text", "white"),
        "teacher": (2.6, 1.9, "teacher: the whole model,\nwithout gradients", PALE),
        "student": (2.6, 0.1, "student: what was cut,\nall weights learn", "#f6e7c4"),
        "loss": (7.4, 1.0, "τ² Σ p log(p / q),\nmean over tokens", "white"),
    }
    widths = {"text": 1.2, "teacher": 3.2, "student": 3.2, "loss": 2.6}
    for name, (left, low, text, fill) in boxes.items():
        shape = {"boxstyle": "round,pad=0.06", "facecolor": fill, "edgecolor": COLOURS[0]}
        axes.add_patch(FancyBboxPatch((left, low), widths[name], 0.9, **shape))
        axes.text(left + widths[name] / 2, low + 0.45, text, ha="center", va="center", fontsize=11)
    style = {"arrowstyle": "->", "linewidth": 1.5, "color": COLOURS[0]}
    for start, end in (
        ((1.3, 1.6), (2.5, 2.3)),
        ((1.3, 1.3), (2.5, 0.6)),
        ((5.9, 2.3), (7.3, 1.6)),
        ((5.9, 0.6), (7.3, 1.3)),
    ):
        axes.annotate("", end, start, arrowprops=style)
    axes.text(6.5, 2.25, "p", fontsize=12)
    axes.text(6.5, 0.5, "q", fontsize=12)
    axes.annotate(
        "gradient", (5.9, 0.25), (8.6, 0.25), arrowprops=style | {"linestyle": "--"}, va="center", fontsize=11
    )
    axes.set(xlim=(-0.2, 10.2), ylim=(-0.1, 3.0))
    axes.axis("off")
    axes.set_title("Both read the same text; the gradient reaches the student alone", loc="left", fontsize=11)
    return fig
