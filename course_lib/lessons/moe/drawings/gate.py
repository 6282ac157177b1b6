"""Drawings of the gate: when the softmax is taken, which logits learn, three kinds of jitter, a load that is smooth.

Dimension key: T tokens, E experts, D width, N draws.
"""

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.moe.losses import sent_probability
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routing import Router

LOGITS = (2.0, 1.5, 0.5, 0.0)  # of one token, for four experts
SLOPES = (1.0, -0.5, 0.8, -0.2)  # of the loss, along what each expert returns
KINDS: dict[str, Router] = {
    "softmax, then the best": OLMoE(k=1),
    "the best, then softmax": Mixtral(k=1),
    "softmax, then the 2 best": OLMoE(k=2),
    "the 2 best, then softmax": Mixtral(k=2),
}
EPS, N_DRAWS = 0.1, 4000


def top_k_then_softmax() -> Figure:
    """One token's weights with the softmax over all experts, and over the chosen ones."""
    fig, panels = figure(n_columns=2, width=4.4, height=3.1)
    for axes, (name, router) in zip(panels, list(KINDS.items())[2:], strict=True):
        routing = router.route(torch.tensor([LOGITS]))
        weights, probs = routing.weights[0], routing.probs[0]
        axes.bar(range(4), probs, 0.7, facecolor="none", edgecolor=COLOURS[4], linestyle="--", label="p, over all 4")
        axes.bar(range(4), weights, 0.5, color=COLOURS[0], label="weight")
        for expert, weight in enumerate(weights.tolist()):
            if weight:
                axes.annotate(f"{weight:.2f}", (expert, max(weight, float(probs[expert]))), ha="center", va="bottom")
        axes.set_xticks(range(4), [f"expert {e}\nlogit {x:g}" for e, x in enumerate(LOGITS)], fontsize=9.5)
        axes.set_ylim(0, 0.75)
        label(axes, f"{name[0].upper()}{name[1:]}: their sum is {weights.sum():.2f}", "", "weight")
    panels[0].legend(frameon=False)
    return fig


def gradients() -> dict[str, Float[Tensor, "E"]]:
    """∂L/∂h of one token, for the four kinds of weights: L is linear in them, with SLOPES."""
    found = {}
    for name, router in KINDS.items():
        logits = torch.tensor([LOGITS], dtype=torch.float64, requires_grad=True)
        loss = (router.route(logits).weights * torch.tensor(SLOPES, dtype=torch.float64)).sum()
        found[name] = torch.autograd.grad(loss, logits)[0][0]
    return found


def where_the_gradient_goes() -> Figure:
    """The gradient at each logit of one token."""
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
            "expert; dark: chosen",
            "gradient at its logit",
        )
        if not reached[-1]:
            axes.text(1.5, 0.1, "no gradient:\nthe weight is 1,\nwhatever the logit", ha="center", fontsize=10)
    for axes in panels[1:]:
        axes.set_ylabel("")
    fig.suptitle(f"A loss reaches {listed(reached)} of the 4 logits", x=0.01, ha="left", fontsize=12)
    return fig


def jittered(seed: int = 0) -> dict[str, Float[Tensor, "N E"]]:
    """The logits W x of one token with what three sources call jitter, N times."""
    generator = torch.Generator().manual_seed(seed)
    x, gate = torch.randn(64, generator=generator), 0.25 * torch.randn(4, 64, generator=generator)
    wanted = torch.tensor([3.0, 1.0, 0.1, -2.0])
    gate += torch.outer(wanted - gate @ x, x) / x.square().sum()

    def uniform(width: int) -> Tensor:
        return torch.empty(N_DRAWS, width).uniform_(1 - EPS, 1 + EPS, generator=generator)

    return {
        "text of the paper: W (u ⊙ x)": (uniform(64) * x) @ gate.T,
        "its pseudo-code: W x + u": wanted + uniform(4),
        "SparseMixer's code: u ⊙ W x": wanted * uniform(4),
    }


def jitter_three_meanings() -> Figure:
    """What u ~ U(1 − ε, 1 + ε) does to the logits of one token."""
    fig, panels = figure(n_columns=3, width=3.1, height=3.7)
    wanted = (3.0, 1.0, 0.1, -2.0)
    for axes, (name, draws) in zip(panels, jittered().items(), strict=True):
        low, high, spread = draws.amin(0), draws.amax(0), draws.std(0)
        axes.vlines(range(4), low, high, color=COLOURS[4], linewidth=12, label=f"{N_DRAWS} draws")
        axes.plot(range(4), wanted, "_", color="black", markersize=22, markeredgewidth=2, label="without jitter")
        for expert in range(4):
            beside = {"textcoords": "offset points", "xytext": (0, 5), "ha": "center", "fontsize": 9.5}
            axes.annotate(f"± {spread[expert]:.2f}", (expert, max(float(high[expert]), wanted[expert])), **beside)
        axes.set_xticks(range(4))
        axes.set_xlim(-0.6, 3.6)
        axes.set_ylim(-3, 5)
        label(axes, name, "expert", "logit")
    panels[0].legend(frameon=False, fontsize=9)
    spreads = [sorted({f"{value:.2f}" for value in draws.std(0).tolist()}) for draws in jittered().values()]
    said = [f"{found[0]} to {found[-1]}" if len(found) > 1 else found[0] for found in spreads]
    fig.suptitle(
        f"ε = {EPS:g}: the logits spread by {said[0]}; by {said[1]} around one more; by {said[2]}",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return fig


def smooth_load() -> Figure:
    """Shazeer's P(x, i) beside the count, over one clean logit; the two best of four are chosen."""
    _, (axes,) = figure(width=7.2, height=3.5)
    grid = torch.linspace(-2.5, 2.5, 501)
    logits = torch.stack([grid, *(torch.full_like(grid, rival) for rival in (1.0, 0.0, -1.0))], dim=1)
    count = (logits.topk(2, dim=1).indices == 0).any(1).float()
    axes.plot(grid, count, color=COLOURS[1], linestyle="--", label="counted: is it among the 2 best?")
    slopes = []
    for index, deviation in enumerate((0.2, 0.69)):
        sent = sent_probability(logits, logits, torch.full_like(logits, deviation), 2)[:, 0]
        look = {"color": COLOURS[0], "linestyle": ("-", "-.")[index]}
        axes.plot(grid, sent, label=f"P(x, i), deviation {deviation:g}", **look)
        slopes.append(float(sent.diff().max() / grid.diff()[0]))
    axes.axvline(0, color=COLOURS[4], linestyle=":")
    axes.annotate("second best\nof the others", (0, 0.04), (0.15, 0.08), fontsize=10)
    axes.legend(frameon=False, fontsize=10)
    found = f"A count is flat but for a jump; P has a slope of up to {slopes[0]:.1f} or {slopes[1]:.1f}"
    return label(axes, found, "clean logit of expert i (rivals: 1, 0, −1)", "load that one token adds").figure
