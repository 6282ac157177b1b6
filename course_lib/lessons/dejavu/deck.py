"""Figures for deck 09: which neurons and heads to keep, and where zeros come from.

Dimension key: T tokens, H query heads, F neurons.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.results import percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.dejavu.drawings.parts import best, small_mlp

SHARES = tuple(step / 20 for step in range(1, 21))
Curves = dict[str, list[float]]


def errors(n_tokens: int = 256, n_neurons: int = 200) -> Curves:
    """‖y − y_kept‖ / ‖y‖ over the share kept, by score, in a random gated MLP whose values have both signs."""
    generator = torch.Generator().manual_seed(0)
    mlp = small_mlp(n_neurons, 64, generator)
    gated = replace(mlp, gate=3 * torch.randn(n_neurons, 64, generator=generator) / 8, activation="silu")
    values = gated.values(torch.randn(n_tokens, 64, generator=generator))
    length = gated.importance(values)
    scores = {
        "h": values,
        "static: mean |h| ‖w‖": length.mean(0, keepdim=True).expand_as(length),
        "|h|": values.abs(),
        "|h| ‖w‖": length,
    }
    dense = values @ mlp.down.T
    lost_by: Curves = {name: [] for name in scores}
    for name, score in scores.items():
        for share in SHARES:
            kept = values.where(best(score, round(share * n_neurons)), 0) @ mlp.down.T
            lost_by[name].append(float((dense - kept).norm() / dense.norm()))
    return lost_by


def importance() -> Figure:
    """What is lost by each score, over the share of neurons kept."""
    _, (axes,) = figure(width=7.6, height=3.7)
    lost_by = errors()
    for index, (name, curve) in enumerate(lost_by.items()):
        axes.plot(SHARES, curve, label=name, markevery=2, **line_style(index))
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right", bbox_to_anchor=(0.9, 0.7))
    few = SHARES.index(0.2)
    said = ", ".join(f"{lost_by[name][few]:.2f} by {name}" for name in ("h", "|h|", "|h| ‖w‖"))
    return label(
        axes, f"A fifth of the neurons kept, error {said}", "share of neurons kept", "error of the output"
    ).figure


def heads(n_heads: int = 9, size: int = 16, width: int = 96) -> Figure:
    """The norm of each head before the output projection and of what it adds behind it, for one token."""
    before, after = head_norms(n_heads, size, width)
    fig, panels = figure(n_columns=2, width=4.4, height=3.1)
    firsts = [set(norms.topk(3).indices.tolist()) for norms in (before, after)]
    for axes, norms, name, first in zip(
        panels, (before, after), ("‖a‖, before W_o", "‖W_o a‖, added"), firsts, strict=True
    ):
        axes.bar(range(n_heads), norms, 0.75, color=[COLOURS[0] if h in first else COLOURS[4] for h in range(n_heads)])
        axes.set_xticks(range(n_heads))
        label(axes, f"Largest by {name}: {', '.join(map(str, sorted(first)))}", "head", "norm")
    common = len(firsts[0] & firsts[1])
    fig.suptitle(
        f"The 3 largest heads before the output projection and the 3 largest behind it have {common} in common",
        x=0.01,
        ha="left",
        fontsize=12,
    )
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
    """The share of Σ h² that is not in the largest values of a token, the mean over tokens, by share kept."""
    squares = values.square().sort(dim=1).values  # the smallest come first, and zeros add up to exactly zero
    left = squares.cumsum(1) / squares.sum(1, keepdim=True)
    return [float(left[:, -round(share * values.shape[1]) - 1].mean()) for share in SHARES[:-1]]


def activations() -> Figure:
    """How much of the energy is lost with the smallest neurons, for normal inputs and four kinds of neurons."""
    generator = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 64, 1000, generator=generator)
    kinds = {
        "ReLU, 10 % fire": (x - 1.2816).relu(),
        "ReLU, 50 % fire": x.relu(),
        "SiLU(gate) × up": torch.nn.functional.silu(x) * other,
        "SiLU": torch.nn.functional.silu(x),
    }
    _, (axes,) = figure(width=7.4, height=3.6)
    for index, (name, values) in enumerate(kinds.items()):
        shares = [share if share > 0 else math.nan for share in lost(values)]
        axes.plot(SHARES[:-1], shares, label=name, markevery=2, **line_style(index))
    axes.set_yscale("log")
    axes.set_ylim(1e-6, 1)
    axes.legend(frameon=False, fontsize=10.5, loc="upper right")
    zeros = {name: float((values == 0).float().mean()) for name, values in kinds.items()}
    relu, silu = (percent(zeros[name]) for name in ("ReLU, 50 % fire", "SiLU"))
    title = f"Normal inputs: {relu} of ReLU's values are exactly zero, {silu} of SiLU's"
    return label(axes, title, "share of neurons kept", "share of Σ h² lost").figure
