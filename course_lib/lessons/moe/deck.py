"""Figures that only deck 06 shows: the title, who gets a gradient, a smooth load, three errors of a mixture.

Dimension key: T tokens, E experts, R distances, K experts, O outputs.
"""

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.moe.drawings import KINDS, PALE, TOKEN_LOGITS, arrow, blank, box, routed
from course_lib.moe.classic.errors import ERRORS, output_gradient
from course_lib.moe.losses import sent_probability

SLOPES = (1.0, -0.5, 0.8, -0.2)  # of the loss, along what each expert returns
NAMED = {
    "cooperative": "(1.1) of the blended output",
    "competitive": "(1.2) expected error of one expert",
    "mixture": "(1.3) of the mixture",
}


def title_picture() -> Figure:
    """Eight experts, of which a token uses two: for the first slide."""
    fig, (axes,) = figure(width=6.2, height=5.2)
    blank(axes, (-0.2, 8.2), (-0.6, 6.5))
    routing = routed()
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


def where_the_gradient_goes() -> Figure:
    """The gradient with respect to each logit of one token."""
    fig, panels = figure(n_columns=4, width=2.35, height=3.7)
    reached = []
    for axes, (name, gradient) in zip(panels, gradients().items(), strict=True):
        chosen = range(KINDS[name].k)  # the logits of the drawing fall from left to right
        axes.bar(range(4), gradient, 0.65, color=[COLOURS[0] if e in chosen else COLOURS[4] for e in range(4)])
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_ylim(-0.4, 0.4)
        axes.set_xticks(range(4))
        reached.append(int((gradient.abs() > 1e-12).sum()))
        label(
            axes,
            f"{name[0].upper()}{name[1:]}".replace(", then", ",\nthen"),
            "expert (dark: chosen)",
            "gradient of the loss\nwith respect to the logit",
        )
        if not reached[-1]:
            axes.text(1.5, 0.1, "no gradient:\nthe weight is\nalways 1", ha="center", fontsize=10)
    for axes in panels[1:]:
        axes.set_ylabel("")
    fig.suptitle(f"{listed(reached)} of the 4 logits have a gradient", x=0.01, ha="left", fontsize=12)
    return fig


def gradients() -> dict[str, Float[Tensor, "E"]]:
    """∂L/∂h of one token for the four kinds of weights; L is linear in the weights, with SLOPES."""
    found = {}
    for name, router in KINDS.items():
        logits = torch.tensor([TOKEN_LOGITS], dtype=torch.float64, requires_grad=True)
        loss = (router.route(logits).weights * torch.tensor(SLOPES, dtype=torch.float64)).sum()
        found[name] = torch.autograd.grad(loss, logits)[0][0]
    return found


def smooth_load() -> Figure:
    """Shazeer's P(x, i) compared with the count, by one clean logit; the top 2 of four are chosen."""
    _, (axes,) = figure(width=7.2, height=3.5)
    grid = torch.linspace(-2.5, 2.5, 501)
    logits = torch.stack([grid, *(torch.full_like(grid, rival) for rival in (1.0, 0.0, -1.0))], dim=1)
    count = (logits.topk(2, dim=1).indices == 0).any(1).float()
    axes.plot(grid, count, color=COLOURS[1], linestyle="--", label="count: is it in the top 2?")
    slopes = []
    for index, deviation in enumerate((0.2, 0.69)):
        sent = sent_probability(logits, logits, torch.full_like(logits, deviation), 2)[:, 0]
        look = {"color": COLOURS[0], "linestyle": ("-", "-.")[index]}
        axes.plot(grid, sent, label=f"P(x, i), standard deviation {deviation:g}", **look)
        slopes.append(float(sent.diff().max() / grid.diff()[0]))
    axes.axvline(0, color=COLOURS[4], linestyle=":")
    axes.annotate("second highest\nof the others", (0, 0.04), (0.15, 0.08), fontsize=10)
    axes.legend(frameon=False, fontsize=10)
    found = f"The count is a step; P has a slope of up to {slopes[0]:.1f} or {slopes[1]:.1f}"
    return label(axes, found, "clean logit of expert i (rivals: 1, 0, −1)", "load from one token").figure


def who_learns() -> Figure:
    """The gradient at an expert by its distance from the target, for the three errors of Jacobs and others."""
    _, (axes,) = figure(width=7.2, height=3.6)
    distances = torch.linspace(0, 5, 101)
    found = pulls(distances)
    for index, (name, pull) in enumerate(found.items()):
        look = line_style(index) | {"marker": None}
        axes.plot(distances, pull, label=NAMED[name], **look)
    axes.axvline(1, color=COLOURS[4], linewidth=0.8, linestyle=":")
    axes.text(1.05, 2.9, "the other expert is here", fontsize=10, va="center")
    axes.legend(frameon=False, loc="upper left")
    at_best = float(distances[found["mixture"].argmax()])
    title = f"With the mixture error the gradient is largest at {at_best:.2g} and vanishes far away"
    return label(axes, title, "distance of an expert's output from the target", "gradient at its output").figure


def pulls(distances: Float[Tensor, "R"]) -> dict[str, Float[Tensor, "R"]]:
    """The gradient at an expert at each distance; another one is at distance 1, and both are equally likely."""
    outputs = torch.stack([distances, torch.ones_like(distances)], dim=1)[..., None]  # (R, 2, 1)
    prior, target = torch.full_like(outputs[..., 0], 0.5), distances.new_zeros(len(distances), 1)
    return {name: output_gradient(name, prior, outputs, target)[:, 0, 0] for name in ERRORS}
