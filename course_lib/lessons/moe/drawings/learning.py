"""Drawings of what learns: experts that compete, and a gradient for a choice.

Dimension key: R distances, K experts, O outputs.
"""

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.moe.drawings.parts import signed
from course_lib.moe.classic.errors import ERRORS, output_gradient

NAMED = {
    "cooperative": "(1.1) of the blended answer",
    "competitive": "(1.2) expected, one answers",
    "mixture": "(1.3) of the mixture",
}


def pulls(distances: Float[Tensor, "R"]) -> dict[str, Float[Tensor, "R"]]:
    """How hard an expert at each distance from the target is pulled; another one stands at 1, both are as likely."""
    outputs = torch.stack([distances, torch.ones_like(distances)], dim=1)[..., None]  # (R, 2, 1)
    prior, target = torch.full_like(outputs[..., 0], 0.5), distances.new_zeros(len(distances), 1)
    return {name: output_gradient(name, prior, outputs, target)[:, 0, 0] for name in ERRORS}


def who_learns() -> Figure:
    """The pull on an expert by its distance from the target, for the three errors of Jacobs and others."""
    _, (axes,) = figure(width=7.2, height=3.6)
    distances = torch.linspace(0, 5, 101)
    found = pulls(distances)
    for index, (name, pull) in enumerate(found.items()):
        look = line_style(index) | {"marker": None}
        axes.plot(distances, pull, label=NAMED[name], **look)
    axes.axvline(1, color=COLOURS[4], linewidth=0.8, linestyle=":")
    axes.text(1.05, -0.15, "here stands the other expert", fontsize=10, va="center")
    axes.legend(frameon=False, loc="upper left")
    at_best = float(distances[found["mixture"].argmax()])
    title = f"The mixture pulls most at distance {at_best:.2g} and lets go of the expert that is far away"
    return label(axes, title, "distance of an expert's answer from the target", "gradient at its answer").figure


def midpoint_rule() -> Figure:
    """Why one slope is worth a difference: the chord of a parabola has the slope at its middle."""
    _, (axes,) = figure(width=7.2, height=3.7)
    p = 0.8  # the probability of the expert that was drawn

    def loss(s: Tensor) -> Tensor:
        return 1.0 - 1.4 * s + 1.1 * s.square()

    def slope(s: float) -> float:
        at = torch.tensor(s, requires_grad=True)
        return float(torch.autograd.grad(loss(at), at)[0])

    grid = torch.linspace(0, 1, 101)
    axes.plot(grid, loss(grid), color=COLOURS[0], linewidth=2, label="L(s o): the expert's output times s")
    ends = torch.tensor([0.0, p])
    chord = float((loss(ends)[1] - loss(ends)[0]) / p)
    axes.plot(ends, loss(ends), color="black", linestyle="--", marker="o", label="chord: what the choice changes")
    for at, colour, dash in ((p / 2, COLOURS[1], "-"), (p, COLOURS[4], "-.")):
        near = torch.tensor([at - 0.2, at + 0.2])
        height = float(loss(torch.tensor(at)))
        name = "half of p" if at < p else "p"
        axes.plot(
            near,
            height + slope(at) * (near - at),
            color=colour,
            linestyle=dash,
            linewidth=2.2,
            label=f"slope at {name}: {signed(slope(at))}",
        )
        axes.plot(at, height, "s", color=colour)
    axes.set_xticks([0, p / 2, p, 1], ["0", "p/2", "p", "1"])
    axes.legend(frameon=False, fontsize=10, loc="upper right")
    title = (
        f"A parabola's chord has the slope at its middle, {signed(chord)}; at its end the slope is {signed(slope(p))}"
    )
    return label(axes, title, "multiplier s of the drawn expert's output", "loss").figure
