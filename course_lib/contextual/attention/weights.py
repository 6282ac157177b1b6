"""The matrices of one layer of attention, head by head.

Dimension key: H query heads, G key-value heads (groups), D width, d size of a head.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model
from course_lib.models import architecture, blocks, heads, rotary_frequencies, weight_of


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionWeights:
    """The four matrices of one layer, with biases where it has them, by head; and the angles of its RoPE."""

    query: Float[Tensor, "H d D"]
    key: Float[Tensor, "G d D"]
    value: Float[Tensor, "G d D"]
    output: Float[Tensor, "D H d"]
    frequencies: Float[Tensor, "half"]
    query_bias: Float[Tensor, "H d"] | None = None
    key_bias: Float[Tensor, "G d"] | None = None
    value_bias: Float[Tensor, "G d"] | None = None
    output_bias: Float[Tensor, "D"] | None = None

    @property
    def group(self) -> int:
        """Query heads that share a key-value head."""
        return len(self.query) // len(self.key)

    @classmethod
    def of(cls, model: PreTrainedModel, block: int) -> "AttentionWeights":
        """Those of a model's block.

        Raises:
            ValueError: for a model without RoPE or without this block, attention with a window, or with more than
                four linears.
        """
        check_model(model)
        if not 0 <= block < len(blocks(model)):
            raise ValueError(f"got block {block}; expected 0 to {len(blocks(model)) - 1}.")
        frequencies, count = rotary_frequencies(model), heads(model)
        names = architecture(blocks(model)[block]).attention
        layers = [blocks(model)[block].get_submodule(name) for name in names]
        known = {id(parameter) for layer in layers for parameter in layer.parameters()}
        attention = blocks(model)[block].get_submodule(names[0].rpartition(".")[0])
        more = [name for name, parameter in attention.named_parameters() if id(parameter) not in known]
        if more:
            raise ValueError(f"got attention with {', '.join(more)}; expected query, key, value and output alone.")
        biases = [None if layer.bias is None else layer.bias.detach() for layer in layers]
        into = [weight_of(layer).unflatten(0, (-1, count.size)) for layer in layers[:-1]]
        into_biases = [None if bias is None else bias.unflatten(0, (-1, count.size)) for bias in biases[:-1]]
        return cls(
            **dict(zip(("query", "key", "value"), into, strict=True)),
            **dict(zip(("query_bias", "key_bias", "value_bias"), into_biases, strict=True)),
            output=weight_of(layers[-1]).unflatten(1, (-1, count.size)),
            output_bias=biases[-1],
            frequencies=frequencies,
        )
