"""The weights of an MLP stored by neuron, so that the weights of a chosen neuron are adjacent in memory.

Dimension key: D width, F neurons, K chosen neurons.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag
from transformers.activations import ACT2FN

from course_lib.contextual.execute.products import product, sampled_product
from course_lib.contextual.execute.room import Room
from course_lib.contextual.neurons import Neurons


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuronMajor:
    """y = Σ_{i in index} act(g_i · x) (u_i · x) w_i, or act(u_i · x) w_i without a gate.

    Row i of each matrix belongs to neuron i. For `down` this is the column of the usual layout, whose numbers are
    spread over memory. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157, section 4.4.

    Args:
        room: the memory for copies of gathered rows; blocks that are computed one after the other can share it.
    """

    gate: Float[Tensor, "F D"] | None
    up: Float[Tensor, "F D"]
    down: Float[Tensor, "F D"]
    activation: str
    gate_bias: Float[Tensor, "F"] | None = None
    up_bias: Float[Tensor, "F"] | None = None
    down_bias: Float[Tensor, "D"] | None = None
    room: Room = field(default_factory=Room, repr=False)

    @classmethod
    def of(cls, neurons: Neurons, room: Room | None = None) -> "NeuronMajor":
        """Use gate and up without a copy if their rows are contiguous, and copy `down` row by row."""
        return cls(
            gate=None if neurons.gate is None else neurons.gate.contiguous(),
            up=neurons.up.contiguous(),
            down=neurons.down.T.contiguous(),
            activation=neurons.activation,
            gate_bias=neurons.gate_bias,
            up_bias=neurons.up_bias,
            down_bias=neurons.down_bias,
            room=room or Room(),
        )

    @property
    def n(self) -> int:
        return len(self.up)

    @property
    def width(self) -> int:
        return self.up.shape[1]

    @property
    def n_bytes(self) -> int:
        """The memory of the matrices in bytes."""
        return sum(weight.nbytes for weight in (self.gate, self.up, self.down) if weight is not None)

    @cached_property
    def bundle(self) -> Float[Tensor, "F parts D"]:
        """A copy in which all weights of a neuron are contiguous in memory."""
        parts = [weight for weight in (self.gate, self.up, self.down) if weight is not None]
        return torch.stack(parts, dim=1)

    @cached_property
    def act(self) -> Callable[[Tensor], Tensor]:
        """The activation function; transformers makes a new module for each request, so we store it."""
        return torch.relu if self.activation == "relu" else ACT2FN[self.activation]

    def values(self, x: Float[Tensor, "D"], index: Int[Tensor, "K"] | None = None) -> Float[Tensor, "K"]:
        """Return h of the chosen neurons, or of all. Rows are copied matrix by matrix; other rows are not read."""
        if index is None:
            return self._joined(lambda weight, bias: product(weight, x, bias))
        return self._joined(lambda weight, bias: product(self.room.rows(weight, index), x, bias, index))

    def sampled_values(self, x: Float[Tensor, "D"], index: Int[Tensor, "K"]) -> Float[Tensor, "K"]:
        """Return h of the chosen neurons without copying rows."""
        return self._joined(lambda weight, bias: sampled_product(weight, x, bias, index))

    def _joined(self, times_x: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
        """Compute h with a function that multiplies rows of a matrix by x and adds biases."""
        inner = times_x(self.up, self.up_bias)
        return self.act(inner) if self.gate is None else self.act(times_x(self.gate, self.gate_bias)) * inner

    def moved(self, y: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Add the bias of the last matrix to y, if it has one."""
        return y if self.down_bias is None else y + self.down_bias

    def bag(self, hidden: Float[Tensor, "K"], index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
        """Compute Σ h_i w_i over the chosen neurons in one pass over their rows."""
        if len(index) == 0:
            return hidden.new_zeros(self.width)
        return embedding_bag(index[None], self.down, per_sample_weights=hidden[None], mode="sum")[0]
