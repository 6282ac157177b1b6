"""What the drawings of lesson 09 share: boxes, arrows, an empty page, and a small MLP.

Dimension key: T tokens, D width, F neurons.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.lessons.common.style import COLOURS
from course_lib.sparsity.ranking import keep_highest

PALE = "#e3e7ec"
SAND = "#f6e7c4"
ARROW = {"arrowstyle": "->", "linewidth": 1.4, "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}

Number = float | int
Point = tuple[Number, Number]


def small_mlp(n_neurons: int, width: int, generator: torch.Generator) -> Neurons:
    """A random one with ReLU: neurons differ in how long their column of the last matrix is."""
    up = torch.randn(n_neurons, width, generator=generator) / width**0.5
    lengths = torch.empty(n_neurons).uniform_(0.2, 1.8, generator=generator)
    down = torch.randn(width, n_neurons, generator=generator)
    return Neurons(gate=None, up=up, down=down / down.norm(dim=0) * lengths, activation="relu")


def lengths_of(mlp: Neurons, inputs: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
    """|h| ‖w‖ of each neuron for each token."""
    return mlp.importance(mlp.values(inputs))


def best(scores: Float[Tensor, "T F"], k: int) -> Bool[Tensor, "T F"]:
    """The k highest of each row."""
    return keep_highest(scores, scores.shape[1] - k)


def blank(axes: Axes, x: Point, y: Point) -> Axes:
    """No frame, no grid, these limits."""
    axes.axis("off")
    axes.set(xlim=x, ylim=y)
    return axes


def box(axes: Axes, corner: Point, size: Point, text: str = "", fill: str = "white", fontsize: Number = 11) -> None:
    """A rounded box, its lower left corner given, with a text in its middle: white on dark."""
    (left, low), (width, height) = corner, size
    axes.add_patch(
        FancyBboxPatch(
            corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", facecolor=fill, edgecolor=COLOURS[0]
        )
    )
    ink = "white" if fill == COLOURS[0] else "black"
    axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=fontsize, color=ink)


def cell(axes: Axes, corner: Point, size: Point, fill: str, text: str = "", **look: object) -> None:
    """A rectangle with a thin edge."""
    (left, low), (width, height) = corner, size
    axes.add_patch(
        Rectangle(corner, width, height, facecolor=fill, **({"edgecolor": COLOURS[0], "linewidth": 0.6} | look))
    )
    if text:
        ink = "white" if fill == COLOURS[0] else "black"
        axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=10.5, color=ink)


def arrow(axes: Axes, start: Point, end: Point, **look: object) -> None:
    """From one place to another."""
    axes.annotate("", end, start, arrowprops=ARROW | look, zorder=1)
