"""The MLP of one transformer block: its matrices, activation function, and the output norm of each neuron.

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
    """The neurons of one MLP: y = Σ_i h_i w_i + b, with w_i column i of `down`.

    h = act(W_gate x) · W_up x, or h = act(W_up x) without a gate. The weights are views of the model's parameters.
    """

    gate: Float[Tensor, "F D"] | None
    up: Float[Tensor, "F D"]
    down: Float[Tensor, "D F"]
    activation: str  # name in transformers: "silu", "relu"
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
        """‖w_i‖₂: norm of the output of neuron i for h_i = 1."""
        return self.down.float().norm(dim=0)

    @property
    def n_bytes(self) -> int:
        """Memory of the matrices in bytes."""
        return sum(weight.nbytes for weight in (self.gate, self.up, self.down) if weight is not None)

    @property
    def into(self) -> tuple[Float[Tensor, "F D"], ...]:
        """The matrices that multiply x: gate and up, or up alone. The activation function follows the first one."""
        return (self.up,) if self.gate is None else (self.gate, self.up)

    @property
    def into_biases(self) -> tuple[Float[Tensor, "F"] | None, ...]:
        """The biases of these matrices."""
        return (self.up_bias,) if self.gate is None else (self.gate_bias, self.up_bias)

    def activated(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """Return act(W_gate x), or act(W_up x) if there is no gate."""
        return self.act(linear(x, self.into[0], self.into_biases[0]))

    def values(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """Return h, the input of the down projection."""
        return self.joined(*(linear(x, weight) for weight in self.into))

    def joined(self, *products: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
        """Compute h from the products of x with gate and up (without biases), or from low-rank copies of these."""
        products = [p if bias is None else p + bias for p, bias in zip(products, self.into_biases, strict=True)]
        return self.act(products[0]) if self.gate is None else self.act(products[0]) * products[1]

    def act(self, values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Apply the activation function."""
        return ACT2FN[self.activation](values)

    def importance(self, hidden: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
        """Return |h_i| ‖w_i‖: the norm of neuron i's contribution to the output."""
        return hidden.float().abs() * self.down_norm


def neurons_of(model: PreTrainedModel) -> list[Neurons]:
    """Return the MLPs of all transformer blocks, in order.

    Raises:
        ValueError: the model is of an unknown family, or has experts.
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
    if len(layers) == 2:  # up and down: an MLP without a gate
        weights, biases = [None, *weights], [None, *biases]
    parts, bias_names = ("gate", "up", "down"), ("gate_bias", "up_bias", "down_bias")
    return Neurons(
        activation=activation_name,
        **dict(zip(parts, weights, strict=True)),
        **dict(zip(bias_names, biases, strict=True)),
    )


def _check_plain(block: nn.Module, names: tuple[str, ...], layers: list[nn.Module]) -> None:
    """Refuse an MLP with parameters outside its linear layers, such as the norm before down in BitNet."""
    path = names[0].rpartition(".")[0]
    linear_ids = {id(parameter) for layer in layers for parameter in layer.parameters()}
    extra = (
        [name for name, weight in block.get_submodule(path).named_parameters() if id(weight) not in linear_ids]
        if path
        else []
    )
    if extra:
        raise ValueError(
            f"got a {type(block).__name__} whose MLP has {', '.join(extra)} as well; expected {', '.join(names)} alone."
        )
