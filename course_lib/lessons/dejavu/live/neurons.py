"""What the neurons of a real model say, token by token, and a student's choice of them as a selector.

Dimension key: L blocks, N windows, T tokens, D width, F neurons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.models import blocks

Importance = Callable[[Float[Tensor, "T F"], Float[Tensor, "D F"], int], Bool[Tensor, "T F"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class ByFunction(NeuronSelector):
    """The neurons that a function keeps: function(hidden (T, F), down (D, F), k) -> (T, F), True where one stays."""

    function: Importance
    reads_hidden = True

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return self.function(seen.hidden, seen.neurons.down, n_kept(self.density, seen.neurons.n)).float()


@torch.no_grad()
def seen_at(model: PreTrainedModel, windows: Int[Tensor, "N T"], numbers: Sequence[int]) -> list[Seen]:
    """What there is to see of each token at some blocks, all windows in one row.

    Raises:
        ValueError: for a block that is not there, or windows of several lengths.
    """
    if not all(0 <= number < len(blocks(model)) for number in numbers):
        raise ValueError(f"got blocks {list(numbers)}; expected numbers from 0 to {len(blocks(model)) - 1}.")
    by_block: dict[int, list[Seen]] = {number: [] for number in numbers}

    def note(block: int, seen: Seen) -> None:
        if block in by_block:
            by_block[block].append(seen)

    look_through(model, windows, note)
    return [_joined(by_block[number]) for number in numbers]


def _joined(parts: list[Seen]) -> Seen:
    first = parts[0]
    rows = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("x", "embedding", "hidden", "real")}
    ids = None if first.ids is None else torch.cat([part.ids for part in parts])
    return Seen(**rows, ids=ids, earlier={}, neurons=first.neurons, n_sequences=len(parts))


def importance(seen: Seen) -> Float[Tensor, "T F"]:
    """|h_i| · ‖w_i‖: the size of what each neuron adds to the residual stream."""
    return seen.neurons.importance(seen.hidden)


def energy_curve(importance: Float[Tensor, "T F"]) -> Float[Tensor, "F"]:
    """The share of Σ_i (|h_i| ‖w_i‖)² that the n largest neurons of a token hold, n = 1 to F: the mean over tokens.

    A mean of shares, and not the share of the sums: a few tokens are thousands of times louder than all others.
    """
    squares = importance.double().square().sort(dim=1, descending=True).values
    squares = squares[squares.sum(dim=1) > 0]
    return (squares.cumsum(dim=1) / squares.sum(dim=1, keepdim=True)).mean(dim=0).float()


def share_for(curve: Float[Tensor, "F"], energy: float) -> float:
    """The smallest share of the neurons whose part of the energy reaches this."""
    return min(int((curve < energy).sum()) + 1, len(curve)) / len(curve)
