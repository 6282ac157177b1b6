"""The weight matrices of one attention layer by head.

Dimension key: T tokens, H query heads, G key-value heads (groups), D width, d size of a head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model
from course_lib.contextual.attention.trials import differ, in_words, trials
from course_lib.kv.rotation import Rotation
from course_lib.models import (
    architecture,
    attention_of,
    blocks,
    heads,
    is_rotated,
    rotary_frequencies,
    rotary_scaling,
    weight_of,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionWeights:
    """The four matrices of one layer by head, its biases if it has them, its rotations (RoPE) and its scaling.

    Args:
        frequencies: the frequencies of RoPE; zeros in a layer without RoPE, so that nothing is rotated.
        scaling: the factor of the products of rotated queries and keys; None for 1/√d.
    """

    query: Float[Tensor, "H d D"]
    key: Float[Tensor, "G d D"]
    value: Float[Tensor, "G d D"]
    output: Float[Tensor, "D H d"]
    frequencies: Float[Tensor, "half"]
    query_bias: Float[Tensor, "H d"] | None = None
    key_bias: Float[Tensor, "G d"] | None = None
    value_bias: Float[Tensor, "G d"] | None = None
    output_bias: Float[Tensor, "D"] | None = None
    scaling: float | None = None

    @property
    def group(self) -> int:
        """The number of query heads that share a key-value head."""
        return len(self.query) // len(self.key)

    @classmethod
    def of(cls, model: PreTrainedModel, block: int) -> "AttentionWeights":
        """Return the weights of one block of a model.

        Raises:
            ValueError: the model has no RoPE or does not have this block; attention has a window or more than four
                linears, or computes something else with them.
        """
        check_model(model)
        if not 0 <= block < len(blocks(model)):
            raise ValueError(f"got block {block}; expected 0 to {len(blocks(model)) - 1}.")
        count, names = heads(model), architecture(blocks(model)[block]).attention
        frequencies, scaling = _rotation(model, block)
        layers = [blocks(model)[block].get_submodule(name) for name in names]
        known = {id(parameter) for layer in layers for parameter in layer.parameters()}
        parameters = attention_of(blocks(model)[block]).named_parameters()
        more = [name for name, parameter in parameters if id(parameter) not in known]
        if more:
            raise ValueError(f"got attention with {', '.join(more)}; expected query, key, value and output alone.")
        biases = [None if layer.bias is None else layer.bias.detach() for layer in layers]
        into = [weight_of(layer).unflatten(0, (-1, count.size)) for layer in layers[:-1]]
        into_biases = [None if bias is None else bias.unflatten(0, (-1, count.size)) for bias in biases[:-1]]
        weights = cls(
            **dict(zip(("query", "key", "value"), into, strict=True)),
            **dict(zip(("query_bias", "key_bias", "value_bias"), into_biases, strict=True)),
            output=weight_of(layers[-1]).unflatten(1, (-1, count.size)),
            output_bias=biases[-1],
            frequencies=frequencies,
            scaling=scaling,
        )
        _check_same(weights, model, block)
        return weights

    def read(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Compute causal attention of all heads over a whole text."""
        # y_t = Σ_h W_h softmax(scaling · R_t q_t (R_u k_u)ᵀ) V over tokens u <= t
        rotation, at = Rotation(self.frequencies), torch.arange(len(x), device=x.device)
        query, keys, values = (self._projected(part, x) for part in ("query", "key", "value"))
        query, keys = rotation.turn(query, at), rotation.turn(keys, at)  # (H, T, d), (G, T, d)
        keys, values = (each.repeat_interleave(self.group, dim=0) for each in (keys, values))
        logits = self.factor * query @ keys.mT
        later = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).triu(1)
        read = logits.masked_fill(later, -torch.inf).softmax(dim=-1) @ values
        total = torch.einsum("htd,Dhd->tD", read, self.output)
        return total if self.output_bias is None else total + self.output_bias

    def _projected(self, part: str, x: Float[Tensor, "T D"]) -> Float[Tensor, "heads T d"]:
        bias = getattr(self, f"{part}_bias")
        found = torch.einsum("hdD,tD->htd", getattr(self, part), x)
        return found if bias is None else found + bias[:, None]

    @property
    def factor(self) -> float:
        """The factor of the products of queries and keys."""
        return self.query.shape[1] ** -0.5 if self.scaling is None else self.scaling


def _rotation(model: PreTrainedModel, block: int) -> tuple[Float[Tensor, "half"], float | None]:
    """Return the frequencies of one block and its scaling; a scaling by RoPE (YaRN) applies to queries and to keys."""
    frequencies, own = rotary_frequencies(model), getattr(attention_of(blocks(model)[block]), "scaling", None)
    if not is_rotated(blocks(model)[block]):
        return torch.zeros_like(frequencies), own
    factor = rotary_scaling(model) ** 2
    return frequencies, (heads(model).size ** -0.5 if own is None else own) * factor


def _check_same(weights: AttentionWeights, model: PreTrainedModel, block: int) -> None:
    """Check that the formula gives the model's output: families with the same names may clip, normalise or scale."""
    trial = trials(model, n_tokens=3)[block]
    if differ(weights.read(trial.into_attention[0]), trial.from_attention[0]):
        raise ValueError(
            f"got a {in_words(model)}, whose attention in block {block} computes something else than softmax(scaling · "
            "q kᵀ) V of its four linears; expected a plain family, such as Llama."
        )
