"""A selector to which what it should predict is not shown.

Dimension key: T tokens, F neurons.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.contextual.selector import NeuronSelector, Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class Blind(NeuronSelector):
    """Another selector, from which the neurons' values and the matrices that make them are hidden."""

    inner: NeuronSelector

    counts_exactly: ClassVar[bool] = False

    @property
    def n_bytes(self) -> int:
        return self.inner.n_bytes

    @property
    def lookahead(self) -> int:
        return self.inner.lookahead

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return self.inner.score(hidden_from(seen), block)

    def keep(self, seen: Seen, block: int) -> Bool[Tensor, "T F"]:
        return replace(self.inner, density=self.density, by_block=self.by_block).keep(hidden_from(seen), block)


def hidden_from(seen: Seen) -> Seen:
    """The same with NaN in place of h, gate and up."""
    neurons = seen.neurons
    known = Neurons(
        gate=None if neurons.gate is None else torch.full_like(neurons.gate, torch.nan),
        up=torch.full_like(neurons.up, torch.nan), down=neurons.down, activation=neurons.activation,
        gate_bias=neurons.gate_bias, up_bias=neurons.up_bias, down_bias=neurons.down_bias,
    )  # fmt: skip
    return replace(seen, neurons=known, hidden=torch.full_like(seen.hidden, torch.nan))
