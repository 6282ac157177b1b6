"""What is known of one block's MLP: its matrices, its nonlinearity, and how far each neuron reaches.

Dimension key: T tokens, D width, F neurons.
"""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from course_lib.contextual.sizes import refuse_mixture
from course_lib.models import activation, architecture, blocks, weight_of


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

    @property
    def into(self) -> tuple[Float[Tensor, "F D"], ...]:
        """The matrices that read x: gate and up, or up alone. The first of them is the one behind which act stands."""
        return (self.up,) if self.gate is None else (self.gate, self.up)

    @property
    def into_biases(self) -> tuple[Float[Tensor, "F"] | None, ...]:
        """Theirs."""
        return (self.up_bias,) if self.gate is None else (self.gate_bias, self.up_bias)

    def activated(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """act(W_gate x), or act(W_up x) where there is no gate."""
        return self.act(linear(x, self.into[0], self.into_biases[0]))

    def values(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """h: what the last matrix reads."""
        return self.joined(*(linear(x, weight) for weight in self.into))

    def joined(self, *products: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
        """h from the products of x with gate and up, or copies of them, before biases."""
        products = [p if bias is None else p + bias for p, bias in zip(products, self.into_biases, strict=True)]
        return self.act(products[0]) if self.gate is None else self.act(products[0]) * products[1]

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


def _neurons(block: nn.Module, activation_name: str) -> Neurons:
    names = architecture(block).mlp
    layers = [block.get_submodule(name) for name in names]
    _check_plain(block, names, layers)
    weights, biases = [weight_of(layer) for layer in layers], [getattr(layer, "bias", None) for layer in layers]
    biases = [None if bias is None else bias.detach() for bias in biases]
    if len(layers) == 2:
        weights, biases = [None, *weights], [None, *biases]
    parts, of_biases = ("gate", "up", "down"), ("gate_bias", "up_bias", "down_bias")
    return Neurons(
        activation=activation_name,
        **dict(zip(parts, weights, strict=True)),
        **dict(zip(of_biases, biases, strict=True)),
    )


def _check_plain(block: nn.Module, names: tuple[str, ...], layers: list[nn.Module]) -> None:
    """Refuse an MLP that has more weights than its linears, such as the norm before the last one in BitNet."""
    path = names[0].rpartition(".")[0]
    known = {id(parameter) for layer in layers for parameter in layer.parameters()}
    more = [name for name, one in block.get_submodule(path).named_parameters() if id(one) not in known] if path else []
    if more:
        raise ValueError(
            f"got a {type(block).__name__} whose MLP has {', '.join(more)} as well; expected {', '.join(names)} alone."
        )
