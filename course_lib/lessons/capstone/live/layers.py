"""One layer of the real model, stored in three ways and made in four orders.

Dimension key: O outputs (rows), I inputs (columns), T tokens.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.capstone.steps.combined import pruned_and_rounded
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import percent
from course_lib.models import layers_of, weight_of

Ways = Callable[[Tensor, int, int], dict[str, int]]
Combine = Callable[[Tensor, Tensor, int, int, int], Tensor]
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of the weights that are pruned
GROUP = 64


@torch.no_grad()
def layer_and_inputs(
    model: PreTrainedModel, name: str, ids: Int[Tensor, "1 T"]
) -> tuple[Float[Tensor, "O I"], Float[Tensor, "T I"]]:
    """A matrix of the model, and what it reads of a text."""
    layer = next(layer for layer in layers_of(model) if layer.name == name)
    seen: list[Tensor] = []
    hook = layer.module.register_forward_pre_hook(lambda _module, given: seen.append(given[0][0]))
    try:
        model(ids, use_cache=False, logits_to_keep=1)
    finally:
        hook.remove()
    return weight_of(layer.module).detach().clone(), seen[0]


def bits_a_weight(
    weight: Float[Tensor, "O I"], ways: Ways, bits: int, shares: Sequence[float] = SHARES
) -> dict[str, list[float]]:
    """For each way, bits stored for a weight, zero or not, over the share of the smallest weights that are pruned."""
    order, found = weight.abs().flatten().argsort(), {}
    for share in shares:
        pruned = weight.flatten().index_fill(0, order[: round(share * len(order))], 0.0).reshape(weight.shape)
        for way, size in ways(pruned, bits, GROUP).items():
            found.setdefault(way, []).append(8 * size / weight.numel())
    return found


def stored(found: Mapping[int, Mapping[str, list[float]]], shares: Sequence[float] = SHARES) -> Figure:
    """A panel for each number of bits; its title says from when on a bitmap takes least."""
    fig, axes = figure(len(found), width=3.9, height=3.2)
    for panel, (bits, ways) in zip(axes, found.items(), strict=True):
        for index, (way, sizes) in enumerate(ways.items()):
            panel.plot([100 * share for share in shares], sizes, label=way, **line_style(index))
        pays = [s for at, s in enumerate(shares) if ways["bitmap"][at] < ways["all codes"][at]]
        title = f"{bits} bits: a bitmap pays from {percent(pays[0])} zeros" if pays else f"{bits} bits: it never pays"
        panel.set_ylim(0, 2.2 * max(ways["all codes"]))
        label(panel, title, "weights pruned (%)", "bits stored a weight" if panel is axes[0] else "")
    axes[0].legend(frameon=False)
    return fig


def made(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"], n_kept: int, bits: int, combine: Combine
) -> dict[str, Float[Tensor, "O I"]]:
    """The layer as the exercise makes it, and as it comes out in three other ways."""
    score = norm * weight.abs()
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, score.topk(n_kept, dim=1).indices, True)
    n, flat = weight.shape[1], torch.ones_like(norm)
    every = pruned_and_rounded(weight, flat, n, bits, GROUP)
    stays = (every.abs() * norm).topk(n_kept, dim=1).indices
    return {
        "mask, then a grid\nof what stays": combine(weight, norm, n_kept, bits, GROUP),
        "mask, and a grid\nof all weights": every * keep,
        "rounded first,\nthen pruned": every * torch.zeros_like(every).scatter(1, stays, 1.0),
        "pruned, and zeros\nrounded too": pruned_and_rounded(weight * keep, flat, n, bits, GROUP),
    }


def errors(
    weight: Float[Tensor, "O I"], inputs: Float[Tensor, "T I"], matrices: Mapping[str, Float[Tensor, "O I"]]
) -> dict[str, float]:
    """‖X (W − Ŵ)ᵀ‖² / ‖X Wᵀ‖² of each."""
    whole = (inputs @ weight.T).square().sum()
    return {name: float((inputs @ (weight - other).T).square().sum() / whole) for name, other in matrices.items()}


def orders(found: Mapping[str, float]) -> Figure:
    """The error of a layer's output by order; the title compares the worst with the exercise's."""
    _, (axes,) = figure(width=7.6, height=2.9)
    names, values = list(found), list(found.values())
    axes.bar(range(len(names)), values, width=0.6, color=[COLOURS[0], *[COLOURS[4]] * (len(names) - 1)])
    axes.set_xticks(range(len(names)), names)
    worst = max(found, key=found.get)
    title = f"{' '.join(worst.split()).capitalize()}: {found[worst] / values[0]:.2f} times the error of the first"
    return label(axes, title, "", "error of the output,\nshare of its energy").figure
