"""Figures of the optional sections of lesson 06: upcycling, noise, the history, and the gradient of a choice.

Dimension key: T tokens, E experts, D width, N trials, J inputs including the constant one, K experts, O outputs.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.data.vowels import VOWELS
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.lessons.moe.drawings import PALE, arrow, blank, box
from course_lib.moe.classic.descent import Samples
from course_lib.moe.estimators.estimator import Estimator
from course_lib.moe.estimators.multiplier import Multiplier
from course_lib.moe.estimators.problems import network
from course_lib.moe.estimators.reinforce import Reinforce
from course_lib.moe.estimators.sparsemixer import SparseMixer
from course_lib.moe.estimators.table import Row, measure

PAPERS = (
    (1991, "Jacobs and others: experts that compete"),
    (1994, "Jordan and Jacobs: trees, EM"),
    (2017, "Shazeer and others: noisy top-k, LSTM"),
    (2020, "GShard: top-2, capacity"),
    (2021, "Switch: top-1; hash layers"),
    (2022, "expert choice; z-loss; upcycling"),
    (2023, "SparseMixer; soft MoE"),
    (2024, "Mixtral; OLMoE; DeepSeek-V3"),
    (2025, "Drop-Upcycling"),
)
EPS, N_TRIALS = 0.1, 4000
COMPARED: dict[str, Estimator] = {
    "weight only (Switch)": Multiplier(),
    "REINFORCE": Reinforce(),
    "SparseMixer, without the exception": SparseMixer(argmax_whole=False),
    "SparseMixer, as released": SparseMixer(argmax_whole=True),
}
TOKENS = tuple(dict.fromkeys(round(10 ** (step / 20)) for step in range(81)))  # 1 to 10,000
N_PROBLEMS = 200


def upcycled() -> Figure:
    """An MLP, four copies of it, and four copies in which half of the neurons are random."""
    fig, panels = figure(n_columns=3, width=3.0, height=3.4)
    for axes, name in zip(panels, ("dense", "copied", "half random"), strict=True):
        blank(axes, (-0.2, 6.2), (-1.3, 3.4))
        if name == "dense":
            _mlp(axes, 2.4, ())
            axes.text(3, 2.9, "E(x)", ha="center", fontsize=12)
        else:
            for expert in range(4):
                _mlp(axes, 1.6 * expert, _redrawn(expert) if name == "half random" else ())
            text = {"copied": "0.7 E(x) + 0.3 E(x) = E(x)", "half random": "0.7 E₀(x) + 0.3 E₂(x)"}[name]
            axes.text(3, 2.9, text, ha="center", fontsize=12)
            gradient = "no gradient" if name == "copied" else "a gradient"
            box(axes, (1.0, -1.25), (4.0, 0.75), f"router: {gradient}")
            for expert in (0, 2):
                arrow(axes, (3, -0.5), (1.6 * expert + 0.6, -0.05), linewidth=0.9)
        axes.set_title(name, loc="center", fontsize=12)
    fig.suptitle("Equal copies have equal outputs, so the router has no gradient until they differ", x=0.01, ha="left")
    return fig


def _redrawn(expert: int) -> tuple[int, ...]:
    """Which eight of sixteen neurons are random in an expert; they differ between experts."""
    generator = torch.Generator().manual_seed(expert)
    return tuple(torch.randperm(16, generator=generator)[:8].tolist())


def _mlp(axes: Axes, left: float, redrawn: tuple[int, ...]) -> None:
    for neuron in range(16):
        fill = PALE if neuron in redrawn else COLOURS[0]
        axes.add_patch(Rectangle((left, neuron * 0.16), 1.2, 0.15, facecolor=fill, edgecolor=COLOURS[0], linewidth=0.3))


def smooth(
    counted: Float[Tensor, "E"], expected: Float[Tensor, "E"], many: Float[Tensor, "E"], n_trials: int
) -> Figure:
    """Deviation of one trial from the mean of many, by expert: for the count and for the smooth load."""
    fig, (axes,) = figure(width=6.4, height=2.8)
    places = range(len(many))
    axes.axhline(0, color=COLOURS[4], linestyle=":", label=f"mean count of {n_trials} trials")
    off = []
    for index, (name, values) in enumerate(
        {"one trial, counted": counted, "the same trial, smooth load": expected}.items()
    ):
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(places, (values - many).tolist(), label=name, **look)
        off.append(float((values - many).abs().mean() / many.mean()))
    axes.legend(frameon=False, fontsize=9)
    axes.set_xticks(places)
    title = f"Mean distance from the average load:\na count {100 * off[0]:.1f} %, a smooth load {100 * off[1]:.1f} %"
    label(axes, title, "expert", f"tokens above the mean\n(about {many.mean():.0f} per expert)")
    return fig


def jitter_three_meanings() -> Figure:
    """The effect of u ~ U(1 − ε, 1 + ε) on the logits of one token, for three definitions of jitter."""
    fig, panels = figure(n_columns=3, width=3.1, height=3.7)
    wanted = (3.0, 1.0, 0.1, -2.0)
    for axes, (name, draws) in zip(panels, jittered().items(), strict=True):
        low, high, spread = draws.amin(0), draws.amax(0), draws.std(0)
        axes.vlines(range(4), low, high, color=COLOURS[4], linewidth=12, label=f"{N_TRIALS} trials")
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
        f"ε = {EPS:g}: standard deviations of {said[0]}; {said[1]} around the logit plus one; {said[2]}",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return fig


def jittered(seed: int = 0) -> dict[str, Float[Tensor, "N E"]]:
    """The logits W x of one token with three kinds of jitter, N times."""
    generator = torch.Generator().manual_seed(seed)
    x, gate = torch.randn(64, generator=generator), 0.25 * torch.randn(4, 64, generator=generator)
    wanted = torch.tensor([3.0, 1.0, 0.1, -2.0])
    gate += torch.outer(wanted - gate @ x, x) / x.square().sum()

    def uniform(width: int) -> Tensor:
        return torch.empty(N_TRIALS, width).uniform_(1 - EPS, 1 + EPS, generator=generator)

    return {
        "Switch, text: W (u ⊙ x)": (uniform(64) * x) @ gate.T,
        "Switch, pseudo-code: W x + u": wanted + uniform(4),
        "SparseMixer, code: u ⊙ W x": wanted * uniform(4),
    }


def timeline() -> Figure:
    """The papers of this lesson, one line per year."""
    fig, (axes,) = figure(width=9.2, height=4.0)
    blank(axes, (1988.5, 2026), (-1.1, len(PAPERS) - 0.4))
    years = [year for year, _ in PAPERS]
    for decade in (1990, 2000, 2010, 2020):
        axes.axvline(decade, color=PALE, linewidth=1, zorder=0)
        axes.text(decade, -0.55, decade, ha="center", va="top", fontsize=10, color=COLOURS[4])
    for place, (year, text) in enumerate(PAPERS):
        y = len(PAPERS) - 1 - place
        axes.plot(year, y, "o", color=COLOURS[0], markersize=8)
        early = year < 2000
        axes.text(
            year + 0.6 if early else year - 0.6,
            y,
            f"{year}  {text}",
            ha="left" if early else "right",
            va="center",
            fontsize=11.5,
        )
    gap, since, until = max((later - year, year, later) for year, later in pairwise(years))
    axes.set_title(
        f"{gap} of these {years[-1] - years[0]} years lie between {since} and {until}", loc="left", fontsize=12
    )
    return fig


def regions(trained: Mapping[str, tuple[Float[Tensor, "K O J"], Float[Tensor, "K J"]]], samples: Samples) -> Figure:
    """The vowels over the regions in which one expert is the likeliest, for pairs of experts and router."""
    fig, panels = figure(n_columns=len(trained), width=4.8, height=3.6)
    x, y = (
        torch.linspace(float(column.min()) - 0.3, float(column.max()) + 0.3, 160) for column in samples.inputs.T[:2]
    )
    across, up = torch.meshgrid(x, y, indexing="xy")
    grid = torch.stack([across.flatten(), up.flatten(), torch.ones(across.numel())], dim=1)
    for axes, (name, (experts, router)) in zip(panels, trained.items(), strict=True):
        likeliest = (grid @ router.T).argmax(dim=1).view(across.shape)
        axes.pcolormesh(x, y, likeliest, cmap="Greys", vmin=-0.5, vmax=6, shading="nearest", rasterized=True)
        for vowel, sound in enumerate(VOWELS):
            points = samples.inputs[samples.classes == vowel]
            look = {"color": COLOURS[vowel], "marker": MARKERS[vowel], "s": 12, "edgecolors": "white"}
            axes.scatter(points[:, 0], points[:, 1], label=sound, linewidths=0.3, **look)
        together, alone = vowel_accuracies(experts, router, samples)
        title = (
            f"{name}: {100 * together:.0f} % correct with all experts,\n{100 * alone:.0f} % with the likeliest alone"
        )
        label(axes, title, "first formant (standard deviations)", "")
        axes.grid(False)
    panels[0].set_ylabel("second formant (standard deviations)")
    panels[-1].legend(frameon=True, fontsize=9, loc="upper right")
    return fig


def vowel_accuracies(
    experts: Float[Tensor, "K O J"], router: Float[Tensor, "K J"], samples: Samples
) -> tuple[float, float]:
    """The accuracy of the blended output, and that of the likeliest expert alone."""
    prior = (samples.inputs @ router.T).softmax(dim=1)
    outputs = torch.einsum("pj,koj->pko", samples.inputs, experts)
    blended = (prior[..., None] * outputs).sum(dim=1)
    likeliest = outputs[torch.arange(len(outputs)), prior.argmax(dim=1)]
    return tuple((each.argmax(dim=1) == samples.classes).float().mean().item() for each in (blended, likeliest))


def midpoint_rule() -> Figure:
    """Why one slope gives a difference of losses: the chord of a parabola has the slope at its midpoint."""
    _, (axes,) = figure(width=7.2, height=3.7)
    p = 0.8  # the probability of the sampled expert

    def loss(s: Tensor) -> Tensor:
        return 1.0 - 1.4 * s + 1.1 * s.square()

    def slope(s: float) -> float:
        at = torch.tensor(s, requires_grad=True)
        return float(torch.autograd.grad(loss(at), at)[0])

    grid = torch.linspace(0, 1, 101)
    axes.plot(grid, loss(grid), color=COLOURS[0], linewidth=2, label="L(s o): the expert's output times s")
    ends = torch.tensor([0.0, p])
    chord = float((loss(ends)[1] - loss(ends)[0]) / p)
    axes.plot(ends, loss(ends), color="black", linestyle="--", marker="o", label="chord: the change of the loss")
    for at, colour, dash in ((p / 2, COLOURS[1], "-"), (p, COLOURS[4], "-.")):
        near = torch.tensor([at - 0.2, at + 0.2])
        height = float(loss(torch.tensor(at)))
        name = "p/2" if at < p else "p"
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
    title = f"The chord has the slope at the midpoint p/2, {signed(chord)}; at p the slope is {signed(slope(p))}"
    return label(axes, title, "factor s of the sampled expert's output", "loss").figure


def signed(value: float) -> str:
    """Two digits, with a proper minus sign."""
    return f"{value:.2f}".replace("-", "−")


def estimators() -> Figure:
    """The error of four estimates that run one expert per token, by the number of tokens in the average."""
    fig, (axes,) = figure(width=8.6, height=4.0)
    found = errors()
    for index, (name, row) in enumerate(found.items()):
        axes.plot(TOKENS, row.errors, label=name, markevery=10, **line_style(index))
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=10)
    released, plain = found["SparseMixer, as released"], found["weight only (Switch)"]
    start, end = first_ahead(released, plain), first_ahead(found["REINFORCE"], released)
    title = (
        "SparseMixer as released has a smaller error than the weight only\n"
        f"from {start} tokens on, and than REINFORCE below {end} tokens"
    )
    label(axes, title, "tokens in the average", "error relative to the gradient")
    return fig


def errors() -> dict[str, Row]:
    """Error of the mean gradient over T tokens, by enumeration; medians over 200 problems."""
    problem = network(N_PROBLEMS, torch.Generator().manual_seed(0))
    return dict(zip(COMPARED, measure(problem, TOKENS, list(COMPARED.values())), strict=True))


def first_ahead(one: Row, other: Row) -> int | None:
    """The number of tokens from which the error of one stays below that of the other; None if it does not."""
    behind = [n for n, mine, theirs in zip(TOKENS, one.errors, other.errors, strict=True) if mine >= theirs]
    later = [n for n in TOKENS if n > max(behind, default=0)]
    return later[0] if later else None
