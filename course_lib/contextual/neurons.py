"""What is known of one block's MLP: its matrices, its nonlinearity, and how far each neuron reaches.

Dimension key: T tokens, D width, F neurons.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from course_lib.models import MIXTRAL, activation, architecture, blocks, n_neurons, weight_of


class Sizes(NamedTuple):
    """What a selector that was fitted to a model has to find again."""

    n_blocks: int
    width: int
    n_neurons: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Neurons:
    """y = Σ_i h_i w_i + b, with h = act(W_gate x) · W_up x, or h = act(W_up x) without a gate; w_i is column i of down.

    Weights are views of the model's own.
    """

    gate: Float[Tensor, "F D"] | None
    up: Float[Tensor, "F D"]
    down: Float[Tensor, "D F"]
    activation: str  # transformers' name: "silu", "relu"
    gate_bias: Float[Tensor, "F"] | None = None
    up_bias: Float[Tensor, "F"] | None = None
    down_bias: Float[Tensor, "D"] | None = None

    @property
    def n(self) -> int:
        return len(self.up)

    @property
    def width(self) -> int:
        return self.up.shape[1]

    @cached_property
    def down_norm(self) -> Float[Tensor, "F"]:
        """‖w_i‖₂: how far the output moves for h_i = 1."""
        return self.down.float().norm(dim=0)

    @property
    def n_bytes(self) -> int:
        """Of the matrices."""
        return sum(weight.nbytes for weight in (self.gate, self.up, self.down) if weight is not None)

    def activated(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """act of the gate, or of the only matrix where there is no gate."""
        if self.gate is None:
            return self.act(functional.linear(x, self.up, self.up_bias))
        return self.act(functional.linear(x, self.gate, self.gate_bias))

    def values(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """h: what the last matrix reads."""
        if self.gate is None:
            return self.activated(x)
        return self.activated(x) * functional.linear(x, self.up, self.up_bias)

    def act(self, values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The nonlinearity."""
        return ACT2FN[self.activation](values)

    def importance(self, hidden: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
        """|h_i| ‖w_i‖: the length of what neuron i adds to the output."""
        return hidden.float().abs() * self.down_norm


def neurons_of(model: PreTrainedModel) -> list[Neurons]:
    """The MLPs of all blocks, in order.

    Raises:
        ValueError: for a model of no known family, or with experts.
    """
    refuse_mixture(model)
    name = activation(model)
    return [_neurons(block, name) for block in blocks(model)]


def sizes_of(model: PreTrainedModel) -> Sizes:
    """How many blocks there are, how wide they are, and how many neurons each has."""
    first = blocks(model)[0]
    down = weight_of(first.get_submodule(architecture(first).mlp[-1]))
    return Sizes(len(blocks(model)), down.shape[0], n_neurons(first))


def refuse_mixture(model: object) -> None:
    """Raises ValueError for a model some of whose blocks have experts in place of an MLP, or what is no model."""
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"got a {type(model).__name__} for a model; expected a causal language model of transformers.")
    mixed = [name for name, _ in model.named_parameters() if name.endswith(f".{MIXTRAL.gate}")]
    if mixed:
        raise ValueError(
            f"got a {type(model).__name__} with experts in {len(mixed)} of its blocks ({mixed[0]}), whose router "
            "chooses among neurons already; expected blocks with one MLP each. For routers see course_lib/moe."
        )


def _neurons(block: nn.Module, activation_name: str) -> Neurons:
    layers = [block.get_submodule(name) for name in architecture(block).mlp]
    weights, biases = [weight_of(layer) for layer in layers], [getattr(layer, "bias", None) for layer in layers]
    biases = [None if bias is None else bias.detach() for bias in biases]
    if len(layers) == 2:
        weights, biases = [None, *weights], [None, *biases]
    names, of_biases = ("gate", "up", "down"), ("gate_bias", "up_bias", "down_bias")
    return Neurons(
        activation=activation_name,
        **dict(zip(names, weights, strict=True)),
        **dict(zip(of_biases, biases, strict=True)),
    )
