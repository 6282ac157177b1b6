"""Figures for deck 09 that follow from formulas or random inputs.

Dimension key: T tokens, D width, H query heads, G query heads of a key-value head, F neurons, B sequences.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.results import load_published, percent, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.dejavu.drawings import NEURONS, RANK, WIDTH
from course_lib.lessons.dejavu.examples import keep_top, small_mlp
from course_lib.quantization.storage import dense_bytes

FRACTIONS = tuple(step / 20 for step in range(1, 21))
Curves = dict[str, list[float]]


def errors(n_tokens: int = 256, n_neurons: int = 200) -> Curves:
    """‖y − y_kept‖ / ‖y‖ over the fraction kept, by score, in a random gated MLP whose values have both signs."""
    generator = torch.Generator().manual_seed(0)
    mlp = small_mlp(n_neurons, 64, generator)
    gated = replace(mlp, gate=3 * torch.randn(n_neurons, 64, generator=generator) / 8, activation="silu")
    values = gated.values(torch.randn(n_tokens, 64, generator=generator))
    importance = gated.importance(values)
    scores = {
        "h": values,
        "static: mean |h| ‖w‖": importance.mean(0, keepdim=True).expand_as(importance),
        "|h|": values.abs(),
        "|h| ‖w‖": importance,
    }
    dense = values @ mlp.down.T
    errors_by_score: Curves = {name: [] for name in scores}
    for name, score in scores.items():
        for fraction in FRACTIONS:
            kept = values.where(keep_top(score, round(fraction * n_neurons)), 0) @ mlp.down.T
            errors_by_score[name].append(float((dense - kept).norm() / dense.norm()))
    return errors_by_score


def importance() -> Figure:
    """Plot the error of the output by score, over the fraction of neurons kept."""
    _, (axes,) = figure(width=7.6, height=3.7)
    errors_by_score = errors()
    for index, (name, curve) in enumerate(errors_by_score.items()):
        axes.plot(FRACTIONS, curve, label=name, markevery=2, **line_style(index))
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right", bbox_to_anchor=(0.9, 0.7))
    few = FRACTIONS.index(0.2)
    numbers = ", ".join(f"{errors_by_score[name][few]:.2f} by {name}" for name in ("h", "|h|", "|h| ‖w‖"))
    title = f"A fifth of the neurons kept, error {numbers}"
    return label(axes, title, "fraction of neurons kept", "error of the output").figure


def heads(n_heads: int = 9, size: int = 16, width: int = 96) -> Figure:
    """Plot the norm of each head before and after the output projection, for one token."""
    before, after = head_norms(n_heads, size, width)
    fig, panels = figure(n_columns=2, width=4.4, height=3.1)
    largest = [set(norms.topk(3).indices.tolist()) for norms in (before, after)]
    names = ("‖a‖, before W_o", "‖W_o a‖, after")
    for axes, norms, name, top in zip(panels, (before, after), names, largest, strict=True):
        axes.bar(range(n_heads), norms, 0.75, color=[COLOURS[0] if h in top else COLOURS[4] for h in range(n_heads)])
        axes.set_xticks(range(n_heads))
        label(axes, f"Largest by {name}: {', '.join(map(str, sorted(top)))}", "head", "norm")
    common = len(largest[0] & largest[1])
    title = f"The 3 largest heads before the output projection and the 3 largest after it have {common} in common"
    fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def head_norms(n_heads: int, size: int, width: int) -> tuple[Float[Tensor, "H"], Float[Tensor, "H"]]:
    """‖a_h‖ and ‖W_o[:, h] a_h‖ of one token; heads differ in how much their part of W_o enlarges."""
    generator = torch.Generator().manual_seed(5)
    outputs = torch.randn(n_heads, size, generator=generator)
    outputs *= torch.empty(n_heads, 1).uniform_(0.6, 1.4, generator=generator)
    parts = torch.randn(n_heads, width, size, generator=generator) / width**0.5
    parts *= torch.empty(n_heads, 1, 1).uniform_(0.4, 1.6, generator=generator)
    return outputs.norm(dim=1), torch.einsum("hwd,hd->hw", parts, outputs).norm(dim=1)


def lost(values: Float[Tensor, "T F"]) -> list[float]:
    """The fraction of Σ h² outside the largest values of a token, the mean over tokens, by fraction kept."""
    squares = values.square().sort(dim=1).values  # the smallest come first, and zeros add up to exactly zero
    left = squares.cumsum(1) / squares.sum(1, keepdim=True)
    return [float(left[:, -round(fraction * values.shape[1]) - 1].mean()) for fraction in FRACTIONS[:-1]]


def activations() -> Figure:
    """Plot how much energy is lost with the smallest neurons, for normal inputs and four activations."""
    generator = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 64, 1000, generator=generator)
    kinds = {
        "ReLU, 10 % active": (x - 1.2816).relu(),
        "ReLU, 50 % active": x.relu(),
        "SiLU(gate) × up": torch.nn.functional.silu(x) * other,
        "SiLU": torch.nn.functional.silu(x),
    }
    _, (axes,) = figure(width=7.4, height=3.6)
    for index, (name, values) in enumerate(kinds.items()):
        fractions = [fraction if fraction > 0 else math.nan for fraction in lost(values)]
        axes.plot(FRACTIONS[:-1], fractions, label=name, markevery=2, **line_style(index))
    axes.set_yscale("log")
    axes.set_ylim(1e-6, 1)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right")
    zeros = {name: float((values == 0).float().mean()) for name, values in kinds.items()}
    relu, silu = (percent(zeros[name]) for name in ("ReLU, 50 % active", "SiLU"))
    title = f"Normal inputs: {relu} of ReLU's values are exactly zero, {silu} of SiLU's"
    return label(axes, title, "fraction of neurons kept", "fraction of Σ h² lost").figure


IMPORTANCE = (4.0, 1.5, 1.2, 1.0, 0.6, 0.4, 0.2, 0.1)  # |h| ‖w‖, in falling order
ACTIVE = 4  # the label: the largest half
GUESSES = {"misses the largest": (1, 2, 3, 5), "misses the fourth": (0, 1, 2, 6)}


def recall(chosen: tuple[int, ...]) -> float:
    """The fraction of the active neurons that is chosen."""
    return sum(neuron < ACTIVE for neuron in chosen) / ACTIVE


def energy_kept(chosen: tuple[int, ...]) -> float:
    """Σ (h ‖w‖)² over the chosen neurons as a fraction of that over all."""
    return sum(IMPORTANCE[neuron] ** 2 for neuron in chosen) / sum(each**2 for each in IMPORTANCE)


def recall_and_energy() -> Figure:
    """Draw what two predictors choose of eight neurons, four of which are labeled as active."""
    fig, panels = figure(n_columns=2, width=4.6, height=3.2)
    for axes, (name, chosen) in zip(panels, GUESSES.items(), strict=True):
        bars = axes.bar(range(len(IMPORTANCE)), IMPORTANCE, 0.75, color="white", edgecolor="black")
        for neuron in chosen:
            bars[neuron].set_facecolor(COLOURS[0])
        axes.axvline(ACTIVE - 0.5, color=COLOURS[1], linestyle="--")
        axes.text(ACTIVE - 0.4, 3.6, "not active", fontsize=10)
        label(axes, f"{name}: recall {recall(chosen):.2f}, energy {energy_kept(chosen):.2f}", "neuron", "|h| ‖w‖")
    recalls = {recall(chosen) for chosen in GUESSES.values()}
    low, high = sorted(energy_kept(chosen) for chosen in GUESSES.values())
    same = "The same recall" if len(recalls) == 1 else "Two recalls"
    fig.suptitle(f"{same}, and an energy of {low:.2f} or {high:.2f} (dark: chosen)", x=0.01, ha="left", fontsize=12)
    return fig


GROUP = 64  # neighbors of a row that share a scale and a zero
# Bits per weight of the MLP, and of the predictor's two matrices.
STORED = {
    "MLP in float32": (32.0, 32.0),
    "in float16": (16.0, 16.0),
    "in 4 bits": (8 * dense_bytes(NEURONS, WIDTH, 4, GROUP) / (WIDTH * NEURONS), 16.0),
}


def predictor_fractions(mlp_bits: float, predictor_bits: float) -> dict[str, float]:
    """What five predictors read for an MLP of SmolLM2, as fractions of its bytes."""
    mlp = 3 * WIDTH * NEURONS * mlp_bits
    copy = {bits: 8 * 2 * dense_bytes(NEURONS, WIDTH, bits, GROUP) for bits in (2, 4)}  # of gate and up
    return {
        "thresholds": 0.0,
        f"rank {RANK}": RANK * (WIDTH + NEURONS) * predictor_bits / mlp,
        "2-bit copy": copy[2] / mlp,
        "4-bit copy": copy[4] / mlp,
        "exact gate": WIDTH * NEURONS * mlp_bits / mlp,
    }


def predictor_bytes() -> Figure:
    """Plot what predictors read as a fraction of the MLP's bytes, for three ways to store the MLP."""
    _, (axes,) = figure(width=8.8, height=3.7)
    hatches = ("", "//", "..")
    for place, (name, bits) in enumerate(STORED.items()):
        fractions = predictor_fractions(*bits)
        at = [number + 0.27 * (place - 1) for number in range(len(fractions))]
        look = {"color": COLOURS[place], "hatch": hatches[place], "edgecolor": "black", "label": name}
        axes.bar(at, list(fractions.values()), 0.26, **look)
        for x, fraction in zip(at, fractions.values(), strict=True):
            axes.text(x, fraction + 0.01, percent(fraction), ha="center", fontsize=8.5)
    axes.set_xticks(range(len(fractions)), list(fractions))
    axes.set_ylim(0, 0.75)
    axes.legend(frameon=False, fontsize=10.5, loc="upper left")
    full, four = (predictor_fractions(*STORED[name])["2-bit copy"] for name in ("MLP in float32", "in 4 bits"))
    title = f"A 2-bit copy of gate and up: {percent(full)} of an MLP in float32, {percent(four)} of one in 4 bits"
    return label(axes, title, "", "fraction of the MLP's bytes").figure


def read_groups(n_heads: int, group: int, kept: int) -> float:
    """The mean fraction of key-value groups with any of k random heads: 1 − C(H − G, k) / C(H, k)."""
    return 1 - math.comb(n_heads - group, kept) / math.comb(n_heads, kept)


def groups_read() -> Figure:
    """Plot the key-value groups that must be read over the heads kept, for three kinds of attention."""
    _, (axes,) = figure(width=7.2, height=3.5)
    kinds = (("no groups: H = 9", 9, 1), ("SmolLM2: H = 9, G = 3", 9, 3), ("H = 32, G = 4", 32, 4))
    for index, (name, n_heads, group) in enumerate(kinds):
        kept = range(1, n_heads + 1)
        fractions = [read_groups(n_heads, group, k) for k in kept]
        axes.plot([k / n_heads for k in kept], fractions, label=name, **line_style(index))
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    title = f"5 of 9 heads at random: {percent(read_groups(9, 3, 5))} of SmolLM2's keys and values are read"
    return label(axes, title, "fraction of query heads kept", "fraction of keys and values read").figure


def union(density: float, n_sequences: int) -> float:
    """The fraction of the neurons that any of B sequences needs with independent choices: 1 − (1 − d)^B."""
    return 1 - (1 - density) ** n_sequences


def batch_union() -> Figure:
    """Plot the union of independent choices over the batch size."""
    _, (axes,) = figure(width=7.2, height=3.5)
    batches = range(1, 33)
    for index, density in enumerate((0.05, 0.1, 0.2, 0.5)):
        unions = [union(density, n) for n in batches]
        axes.plot(batches, unions, label=f"density {density:g}", markevery=4, **line_style(index))
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    first = {density: next(n for n in batches if union(density, n) > 0.5) for density in (0.05, 0.1, 0.2)}
    sizes = ", ".join(f"{n} at density {density:g}" for density, n in first.items())
    title = f"Independent choices: more than half of the neurons from batch size\n{sizes} on"
    return label(axes, title, "batch size", "fraction of neurons that any needs").figure


def cosine(ratio: float, between: float) -> float:
    """The cosine of X and X + F, where ‖F‖ = ratio · ‖X‖ and F and X have the cosine `between`."""
    return (1 + ratio * between) / math.sqrt(1 + 2 * ratio * between + ratio**2)


def slow_change() -> Figure:
    """Plot the cosine of the input and output of a block over the length of what it adds."""
    _, (axes,) = figure(width=7.2, height=3.5)
    ratios = [step / 50 for step in range(101)]
    kinds = (("F orthogonal to X", 0.0), ("F at a cosine of 0.5", 0.5), ("F at a cosine of −0.5", -0.5))
    for index, (name, between) in enumerate(kinds):
        look = line_style(index) | {"marker": None}
        axes.plot(ratios, [cosine(ratio, between) for ratio in ratios], label=name, **look)
    _mark(axes, 0.99)
    _mark(axes, 0.95)
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=10.5, loc="lower left")
    title = (
        f"If orthogonal, a cosine of 0.99 is ‖F‖ = {_ratio(0.99):.2f} ‖X‖, and one of 0.95 is {_ratio(0.95):.2f} ‖X‖"
    )
    return label(axes, title, "‖F‖ / ‖X‖", "cosine of X and X + F").figure


def _ratio(cosine: float) -> float:
    """‖F‖ / ‖X‖ that gives this cosine if F is orthogonal to X."""
    return math.sqrt(1 / cosine**2 - 1)


def _mark(axes: Axes, cosine: float) -> None:
    axes.plot(_ratio(cosine), cosine, "D", color="black", markersize=6, zorder=3)


def published_fraction_read() -> float:
    """The fraction of a block of OPT-175B that Deja Vu reads at the densities of its latencies."""
    parts = rows(load_published("dejavu"), "dejavu_read")
    return sum(part["gigabytes"] * part["density"] for part in parts) / sum(part["gigabytes"] for part in parts)
