"""Drawings of a layer of experts: as a picture, and to scale."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.moe.drawings.parts import LOGITS, PALE, arrow, blank, box
from course_lib.moe.routed import Routing
from course_lib.moe.routers.olmoe import OLMoE

WIDTH, NEURONS = 576, 1536  # of an MLP of SmolLM2-135M, which is one expert here
WIDE, TALL = WIDTH / 100, NEURONS / 100  # as drawn
APART = 3 * WIDE + 2.2


def title_picture() -> Figure:
    """Eight experts, two of them at work: for the first slide."""
    fig, (axes,) = figure(width=6.2, height=5.2)
    blank(axes, (-0.2, 8.2), (-0.6, 6.5))
    routing = _routed()
    box(axes, (2.8, 5.3), (2.4, 1.0), "token", fontsize=20)
    box(axes, (2.8, -0.5), (2.4, 1.0), "Σ", fontsize=20)
    for expert, chosen in enumerate(routing.keep[0].tolist()):
        axes.add_patch(
            Rectangle((expert + 0.08, 1.6), 0.84, 2.5, facecolor=COLOURS[0] if chosen else PALE, edgecolor=COLOURS[0])
        )
        if chosen:
            arrow(axes, (4, 5.3), (expert + 0.5, 4.15))
            arrow(axes, (expert + 0.5, 1.6), (4, 0.55))
    return fig


def one_layer() -> Figure:
    """Eight MLPs of SmolLM2 and their router, to scale: the two that a token wakes are dark."""
    fig, (axes,) = figure(width=10.4, height=4.5)
    blank(axes, (-1, 8 * APART - 1), (-15.5, 36))
    middle = 4 * APART - 1
    axes.text(middle, 34, "token x", ha="center", fontsize=12)
    arrow(axes, (middle, 33), (middle, 30.7))
    axes.add_patch(Rectangle((middle - WIDE / 2, 30), WIDE, 8 / 100, facecolor="black", edgecolor="black"))
    axes.text(middle + 5, 30, "router: 8 rows of 576, to scale", va="center", fontsize=10.5)
    routing = _routed()
    for expert in range(8):
        _expert(axes, expert, routing)
    axes.text(middle, -14.6, "y = Σ p E(x) over the two", ha="center", fontsize=12)
    used = int(routing.keep.sum())
    stored, router = 8 * 3 * WIDTH * NEURONS, 8 * WIDTH
    title = (
        f"Eight experts: {stored / 1e6:.1f} M weights are stored, {used * stored / 8e6:.1f} M of them multiplied for a "
        f"token; the router has {router:,}"
    )
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def _routed() -> Routing:
    """The two best of eight, each with its own probability."""
    return OLMoE(k=2).route(torch.tensor([LOGITS]))


def _expert(axes: Axes, number: int, routing: Routing) -> None:
    """Its three matrices side by side, the last one turned, under the probability that the router gives it."""
    left, middle = number * APART, number * APART + 1.5 * WIDE
    chosen, p = bool(routing.keep[0, number]), float(routing.probs[0, number])
    for matrix, name in enumerate(("gate", "up", "down")):
        look = {"facecolor": COLOURS[0] if chosen else PALE, "edgecolor": COLOURS[4], "linewidth": 0.8}
        axes.add_patch(Rectangle((left + matrix * WIDE, 0), WIDE, TALL, **look))
        ink = "white" if chosen else "black"
        axes.text(left + (matrix + 0.5) * WIDE, TALL / 2, name, rotation=90, ha="center", va="center", color=ink)
    low = TALL + 1.5
    axes.add_patch(
        Rectangle((middle - 2, low), 4, 20 * p, facecolor=COLOURS[1] if chosen else PALE, edgecolor=COLOURS[0])
    )
    axes.text(middle, low + 20 * p + 0.5, f"{p:.2f}", ha="center", va="bottom", fontsize=10.5)
    if chosen:
        arrow(axes, (4 * APART - 1, 29.6), (middle, low + 20 * p + 3.4))
        arrow(axes, (middle, -0.6), (4 * APART - 1, -11.8))
        axes.text(middle + 1.5, -4.5, f"× {p:.2f}", ha="left", fontsize=11)
