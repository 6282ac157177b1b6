"""The weights of an MLP neuron by neuron, so that those of the chosen ones lie together in memory.

Dimension key: D width, F neurons, K chosen neurons.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag
from transformers.activations import ACT2FN

from course_lib.contextual.neurons import Neurons


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuronMajor:
    """y = Σ_{i in index} act(g_i · x) (u_i · x) w_i, or act(u_i · x) w_i without a gate.

    Row i of each matrix belongs to neuron i; of down it is the column that others store, which would be a number here
    and a number there. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157, section 4.4.
    """

    gate: Float[Tensor, "F D"] | None
    up: Float[Tensor, "F D"]
    down: Float[Tensor, "F D"]
    activation: str
    gate_bias: Float[Tensor, "F"] | None = None
    up_bias: Float[Tensor, "F"] | None = None
    down_bias: Float[Tensor, "D"] | None = None

    @classmethod
    def of(cls, neurons: Neurons) -> "NeuronMajor":
        """Gate and up as they are, down copied row by row."""
        return cls(
            gate=neurons.gate,
            up=neurons.up,
            down=neurons.down.T.contiguous(),
            activation=neurons.activation,
            gate_bias=neurons.gate_bias,
            up_bias=neurons.up_bias,
            down_bias=neurons.down_bias,
        )

    @property
    def n(self) -> int:
        return len(self.up)

    @property
    def width(self) -> int:
        return self.up.shape[1]

    @property
    def n_bytes(self) -> int:
        """Of the matrices."""
        return sum(weight.nbytes for weight in (self.gate, self.up, self.down) if weight is not None)

    @cached_property
    def bundle(self) -> Float[Tensor, "F parts D"]:
        """A copy in which all that belongs to a neuron is one stretch of memory."""
        parts = [weight for weight in (self.gate, self.up, self.down) if weight is not None]
        return torch.stack(parts, dim=1)

    def values(self, x: Float[Tensor, "D"], index: Int[Tensor, "K"]) -> Float[Tensor, "K"]:
        """h of the chosen neurons; no row of another one is read."""
        rows = None if self.gate is None else self.gate.index_select(0, index)
        return self.hidden(x, rows, self.up.index_select(0, index), index)

    def hidden(
        self, x: Float[Tensor, "D"], gate: Tensor | None, up: Float[Tensor, "K D"], index: Int[Tensor, "K"] | None
    ) -> Float[Tensor, "K"]:
        """h of the neurons whose rows are given; index None stands for all."""
        inner = product(up, x, self.up_bias, index)
        if gate is None:
            return self.act(inner)
        return self.act(product(gate, x, self.gate_bias, index)) * inner

    def act(self, values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The nonlinearity."""
        return values.relu() if self.activation == "relu" else ACT2FN[self.activation](values)

    def moved(self, y: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """With the bias of the last matrix, where it has one."""
        return y if self.down_bias is None else y + self.down_bias

    def bag(self, hidden: Float[Tensor, "K"], index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
        """Σ h_i w_i over the chosen neurons, in one pass over their rows."""
        if len(index) == 0:
            return hidden.new_zeros(self.width)
        return embedding_bag(index[None], self.down, per_sample_weights=hidden[None], mode="sum")[0]


def product(
    rows: Float[Tensor, "K D"], x: Float[Tensor, "D"], bias: Tensor | None, index: Int[Tensor, "K"] | None = None
) -> Float[Tensor, "K"]:
    """Rows times x, and their biases; index says which of the biases, None all."""
    if bias is None:
        return torch.mv(rows, x)
    return torch.addmv(bias if index is None else bias.index_select(0, index), rows, x)
