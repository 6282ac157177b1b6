"""`with evicting(model, policy) as cache:` — the model attends over slots, and tokens that the policy evicts are gone.

This takes only a registered attention function and a cache layer; no class of the model changes.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model, check_plain, reading_through
from course_lib.kv.layers import EvictingCache, waiting
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.rotation import Rotation
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat
from course_lib.models import blocks, check_all_rotated, heads, rotary_frequencies

NAME = "course_evicting"


@contextmanager
def evicting(
    model: PreTrainedModel, policy: EvictionPolicy, positions: str = "original", vectors: VectorFormat = FULL_PRECISION
) -> Iterator[EvictingCache]:
    """Let a model attend through a new cache under `policy`; on exit the model is as before. For evaluation only.

    Args:
        positions: "original", as in the text, or "rolling", counted in slots (StreamingLLM): needs RoPE.
        vectors: how keys and values are stored: in full precision, or Quantized(bits=4).

    Raises:
        ValueError: on entry, for settings that do not fit the model, or a model that is already in such a block. Inside
            the block, for attention with dropout or a non-standard softmax, for a cache of fixed size, and if attention
            weights are requested.
    """
    _check(model, policy, vectors)
    rolling = _rolling(model, positions)
    cache = EvictingCache(model, policy, rolling, vectors)
    with attending(model, cache):
        yield cache
    if cache.slots and not cache.n_evicted and not policy.keeps_all:
        warnings.warn(f"nothing was evicted: {cache.get_seq_length()} tokens never filled {policy}.", stacklevel=3)


def _rolling(model: PreTrainedModel, positions: str) -> Rotation | None:
    if positions not in ("original", "rolling"):
        raise ValueError(f'got positions {positions!r}; expected "original" or "rolling".')
    if positions == "original":
        return None
    check_all_rotated(model)
    return Rotation(rotary_frequencies(model))


def _check(model: PreTrainedModel, policy: object, vectors: object = FULL_PRECISION) -> None:
    if not isinstance(policy, EvictionPolicy):
        raise ValueError(f"got policy {policy!r}; expected an EvictionPolicy, such as StreamingLLM(budget=256).")
    if not isinstance(vectors, VectorFormat):
        raise ValueError(f"got vectors {vectors!r}; expected how they are stored, such as Quantized(bits=4).")
    check_model(model)
    n_layers, n_heads = len(blocks(model)), heads(model).n_key_value
    for name, expected in (("by_layer", n_layers), ("by_head", n_heads)):
        factors = getattr(policy, name)
        if factors and len(factors) != expected:
            raise ValueError(f"got {len(factors)} factors in {name}; expected {expected}, as many as the model has.")
    spared = {layer % n_layers for layer in getattr(policy, "spared", ()) if -n_layers <= layer < n_layers}
    if len(spared) == n_layers and not policy.keeps_all:
        raise ValueError(
            f"got spared {policy.spared} in a model of {n_layers} layers, which leaves no layer to evict from; "
            "expected fewer, such as spared=()."
        )


@contextmanager
def attending(model: PreTrainedModel, cache: EvictingCache) -> Iterator[None]:
    """Let a model attend through this cache; on exit the model is as before and the cache cannot be used again."""
    with reading_through(model, NAME, _attention):
        try:
            yield
        finally:
            cache.active = False


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_ids: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls in each layer; (B, heads, Q, D) in, (B, Q, heads, D) out."""
    check_plain(module, kwargs, kwargs.get("dropout", 0.0))
    layer = waiting.get()
    waiting.set(None)
    if layer is None or layer.cache.config is not module.config:
        raise ValueError(
            f"got a {type(module).__name__} that attends without the cache of this model's evicting(...); expected "
            "past_key_values=cache, no copy of it, in a family that attends once in each layer."
        )
    if attention_mask is not None and attention_mask.ndim != 2:
        raise ValueError(f"got an attention mask of shape {tuple(attention_mask.shape)}; expected (sequences, tokens).")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = layer.cache.forward_(layer, query, key, value, attention_mask, position_ids, scaling)
    layer.cache.passed(layer, query.shape[2])
    return output.transpose(1, 2), None
