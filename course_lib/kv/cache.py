"""`with evicting(model, policy) as cache:` — the model attends over slots, and what the policy lets go is gone.

A registered attention function and a cache layer are all there is; no class of the model is touched. The layer takes
the new keys and values, and the attention function, called next in the same forward pass, gives it everything else: the
queries, which tokens are padding, and where RoPE turned them.

Dimension key: B sequences, H key-value heads, Q new tokens, D size of a head.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from course_lib.kv.attention import attend
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE, PLAIN, Vectors
from course_lib.models import blocks, heads, rotary_frequencies

NAME = "course_evicting"
_current: ContextVar["EvictingLayer | None"] = ContextVar(
    "the layer that has taken keys and not yet attended", default=None
)


class EvictingLayer(CacheLayerMixin):
    """One layer's slots. Lengths that transformers asks for are those of the text, not of what is left of it."""

    def __init__(self, cache: "EvictingCache", index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.slots: Slots | None = None
        self.n_passed = 0  # tokens that came, padding included

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.slots, self.is_initialized = Slots.empty(key_states, self.cache.vectors), True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Takes keys and values (B, H, Q, D); `take_and_attend` makes slots of them."""
        if not self.cache.active:
            raise ValueError(
                "got an evicting cache after its `with` block; expected it inside. Make another with evicting(...)."
            )
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[:2] != self.slots.shape:
            raise ValueError(
                f"got keys of {tuple(key_states.shape[:2])} sequences and heads in a cache of {self.slots.shape}; a "
                "cache is for one batch of one model. Call cache.reset() before another batch."
            )
        self.n_passed += key_states.shape[2]
        _current.set(self)
        return key_states, value_states

    def take_and_attend(
        self,
        query: Float[Tensor, "B heads Q D"],
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        padding: Tensor | None,
        rotation: Int[Tensor, "b Q"] | None,
        scaling: float,
    ) -> Float[Tensor, "B heads Q D"]:
        """New slots, what the queries read of all of them, and the eviction after it."""
        n_new, seen = keys.shape[2], self.slots.n_seen
        valid = torch.ones_like(keys[:, 0, :, 0], dtype=torch.bool)
        if padding is not None:
            valid = padding[:, -n_new:].bool()
        position = torch.where(valid, seen[:, None] + valid.cumsum(dim=1) - 1, FREE)
        rotation = position if rotation is None else rotation.expand(len(keys), -1)
        slots = self.slots.append(keys, values, valid, rotation)
        fresh = (keys, values) if self.cache.vectors != PLAIN else None
        output, self.slots = attend(query, slots, position, scaling, self.cache.policy, self.cache.rolling, fresh)
        self.cache.shrink(self.index)
        return output

    def get_seq_length(self) -> int:
        return self.n_passed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.n_passed + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.slots, self.n_passed, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.slots is not None:
            rows = torch.arange(len(self.slots.n_seen), device=self.slots.n_seen.device)
            self.slots = self.slots.select(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.slots is not None:
            self.slots = self.slots.select(indices.to(self.slots.n_seen.device))


class EvictingCache(Cache):
    """The slots of all layers. Give it to `model(...)` or `model.generate(...)` as `past_key_values`."""

    def __init__(
        self, model: PreTrainedModel, policy: EvictionPolicy, rolling: Rotation | None, vectors: Vectors = PLAIN
    ):
        super().__init__(layers=[EvictingLayer(self, index) for index in range(len(blocks(model)))])
        self.policy, self.rolling, self.vectors, self.active = policy, rolling, vectors, True
        self.config = model.config
        self.n_evicted = 0  # slots, all layers together
        self.planned = not policy.plans

    def shrink(self, index: int) -> None:
        """A layer has attended. A policy with a plan waits for the last one of the first pass."""
        if not self.planned and index < len(self.layers) - 1:
            return
        changed = [self.layers[index]]
        if not self.planned:
            changed, self.planned = self.layers, True
            for layer, slots in zip(self.layers, self.policy.plan(self.slots), strict=True):
                layer.slots = slots
        for layer in changed:
            before, layer.slots = layer.slots.n, self.policy.shrink(layer.slots, layer.index)
            self.n_evicted += before - layer.slots.n

    def reset(self) -> None:
        """As at the start, for another text."""
        super().reset()
        self.planned = not self.policy.plans

    @property
    def slots(self) -> list[Slots]:
        """Those of each layer; empty before the first forward pass."""
        return [layer.slots for layer in self.layers if layer.slots is not None]

    @property
    def bytes_held(self) -> int:
        """Keys and values of the tokens that are kept."""
        return sum(each.bytes_of_vectors for each in self.slots)

    @property
    def bytes_allocated(self) -> int:
        """All storage: also slots ahead, FREE ones, positions and what the policy remembers."""
        tensors = [tensor for each in self.slots for tensor in (*each.storage.values(), *each.per_head.values())]
        return sum(tensor.nbytes for tensor in tensors)

    @property
    def bytes_of_all(self) -> int:
        """Keys and values of every token seen, as a cache that forgets nothing would hold."""
        return sum(int(each.n_seen.sum()) * each.shape[1] * each.bytes_unpacked for each in self.slots)


@contextmanager
def evicting(
    model: PreTrainedModel, policy: EvictionPolicy, positions: str = "original", vectors: Vectors = PLAIN
) -> Iterator[EvictingCache]:
    """Let a model attend through a fresh cache under `policy`; on exit the model is as before. For evaluation.

    Args:
        positions: "original", as in the text, or "rolling", counted in slots (StreamingLLM): needs RoPE.
        vectors: how keys and values are stored: as they come, or Quantized(bits=4).

    Raises:
        ValueError: for settings that this model cannot have, or a model that is inside such a block already.
    """
    rolling = _rolling(model, positions)
    _check(model, policy, vectors)
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _padding)
    before, cache = model.config._attn_implementation, EvictingCache(model, policy, rolling, vectors)
    model.set_attn_implementation(NAME)
    try:
        yield cache
    finally:
        cache.active = False
        model.set_attn_implementation(before)
    if cache.slots and not cache.n_evicted and policy.budget != 1.0:
        warnings.warn(f"nothing was evicted: {cache.get_seq_length()} tokens never filled {policy}.", stacklevel=3)


def _rolling(model: PreTrainedModel, positions: str) -> Rotation | None:
    if positions not in ("original", "rolling"):
        raise ValueError(f'got positions {positions!r}; expected "original" or "rolling".')
    return Rotation(rotary_frequencies(model)) if positions == "rolling" else None


def _check(model: PreTrainedModel, policy: object, vectors: object = PLAIN) -> None:
    if not isinstance(policy, EvictionPolicy):
        raise ValueError(f"got policy {policy!r}; expected an EvictionPolicy, such as StreamingLLM(budget=256).")
    if not isinstance(vectors, Vectors):
        raise ValueError(f"got vectors {vectors!r}; expected how they are stored, such as Quantized(bits=4).")
    if model.config._attn_implementation == NAME:
        raise ValueError("got a model that is evicting already; leave its `with` block first.")
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(model.config, "sliding_window", None):
        raise ValueError(f"got a model whose layers have windows of their own ({kinds or 'sliding_window'}).")
    n_layers, n_heads = len(blocks(model)), heads(model).n_key_value
    for name, expected in (("by_layer", n_layers), ("by_head", n_heads)):
        factors = getattr(policy, name)
        if factors and len(factors) != expected:
            raise ValueError(f"got {len(factors)} factors in {name}; expected {expected}, as many as the model has.")


def _padding(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """The mask as it was given, 1 for tokens and 0 for padding: causality follows from positions."""
    return attention_mask


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
    """What transformers calls in each layer; (B, heads, Q, D) in, (B, Q, heads, D) out."""
    layer = _current.get()
    _current.set(None)
    if layer is None or layer.cache.config is not module.config:
        raise ValueError(
            "got a forward pass without the cache of this model's evicting(...); expected past_key_values=cache."
        )
    if attention_mask is not None and attention_mask.ndim != 2:
        raise ValueError(f"got an attention mask of shape {tuple(attention_mask.shape)}; expected (sequences, tokens).")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = layer.take_and_attend(query, key, value, attention_mask, position_ids, scaling)
    return output.transpose(1, 2), None
