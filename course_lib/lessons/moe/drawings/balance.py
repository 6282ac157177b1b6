"""A drawing of two layers that collapse differently, and what an average over layers makes of it.

Dimension key: T tokens, E experts.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.moe.losses import balance

Layer = tuple[Float[Tensor, "T E"], Bool[Tensor, "T E"]]  # probabilities and choices


def collapsed(experts: tuple[int, ...], n_experts: int = 4, n_tokens: int = 8) -> Layer:
    """All tokens take these experts, with all their probability."""
    chosen = torch.zeros(n_tokens, n_experts, dtype=torch.bool)
    chosen[:, list(experts)] = True
    return chosen / len(experts), chosen


def by_layer() -> Figure:
    """Two layers on their own half of four experts each; then both as one."""
    first, second = collapsed((0, 1)), collapsed((2, 3))
    averaged = tuple(torch.cat(parts) for parts in zip(first, second, strict=True))
    named = {"layer 1": first, "layer 2": second, "averaged first": averaged}
    losses = {name: float(balance(*layer, alpha=1.0)) for name, layer in named.items()}
    fig, panels = figure(n_columns=3, width=3.0, height=3.5)
    for axes, (name, (probs, chosen)) in zip(panels, named.items(), strict=True):
        load, mean = chosen.sum(0) / chosen.sum(), probs.mean(0)
        axes.bar([e - 0.2 for e in range(4)], load, 0.38, color=COLOURS[0], label="f, share of choices")
        axes.bar([e + 0.2 for e in range(4)], mean, 0.38, color=COLOURS[3], hatch="//", label="P, mean probability")
        axes.set_xticks(range(4))
        axes.set_ylim(0, 0.75)
        label(axes, f"{name}: N Σ f P = {losses[name]:.1f}", "expert", "share")
    panels[0].legend(frameon=False, fontsize=9.5)
    mean = (losses["layer 1"] + losses["layer 2"]) / 2
    fig.suptitle(
        f"Layer by layer the loss is {mean:.1f}; of loads averaged over layers "
        f"{losses['averaged first']:.1f}, as at balance",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return fig
