"""What the neurons of a real model say, token by token, and how much each counts.

Dimension key: L blocks, N windows, T tokens, D width, F neurons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import architecture, blocks, weight_of


@dataclass(frozen=True)
class Hidden:
    """Of one block: what goes into its MLP, the values h of its neurons, and the norms of their columns of down."""

    x: Float[Tensor, "T D"]
    values: Float[Tensor, "T F"]
    norms: Float[Tensor, "F"]

    @property
    def importance(self) -> Float[Tensor, "T F"]:
        """|h_i| · ‖w_i‖: the size of what each neuron adds to the residual stream."""
        return self.values.abs() * self.norms


@torch.no_grad()
def hidden(model: PreTrainedModel, windows: Int[Tensor, "N T"], numbers: Sequence[int]) -> list[Hidden]:
    """Of these blocks, all tokens of all windows in one row.

    Raises:
        ValueError: for a block that is not there.
    """
    all_blocks = blocks(model)
    if not all(0 <= number < len(all_blocks) for number in numbers):
        raise ValueError(f"got blocks {list(numbers)}; expected numbers from 0 to {len(all_blocks) - 1}.")
    inputs, values, downs, handles = [], [], [], []
    for number in numbers:
        into, *_, down = (all_blocks[number].get_submodule(name) for name in architecture(all_blocks[number]).mlp)
        downs.append(weight_of(down))
        handles.append(into.register_forward_pre_hook(_append_to(inputs)))
        handles.append(down.register_forward_pre_hook(_append_to(values)))
    try:
        model(windows, use_cache=False, logits_to_keep=1)
    finally:
        for handle in handles:
            handle.remove()
    order = sorted(range(len(numbers)), key=lambda place: numbers[place])  # hooks ran in the order of the blocks
    found = {
        place: Hidden(x, h, downs[place].norm(dim=0)) for place, x, h in zip(order, inputs, values, strict=True)
    }
    return [found[place] for place in range(len(numbers))]


def _append_to(seen: list[Tensor]) -> Callable[[torch.nn.Module, tuple[Tensor, ...]], None]:
    def hook(_: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0].flatten(0, -2))

    return hook


def energy_curve(importance: Float[Tensor, "T F"]) -> Float[Tensor, "F"]:
    """The share of Σ (|h| ‖w‖)² that the n largest neurons of each token hold, n = 1 to F: sums over tokens first."""
    squares = importance.double().square().sort(dim=1, descending=True).values.sum(dim=0)
    return (squares.cumsum(0) / squares.sum()).float()


def share_for(importance: Float[Tensor, "T F"], energy: float) -> float:
    """The smallest share of the neurons whose part of the energy reaches this."""
    curve = energy_curve(importance)
    return (int((curve < energy).sum()) + 1) / len(curve)
