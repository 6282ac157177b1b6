"""One layer of the cache, and the attention function through which a model reads it.

transformers asks the layer to take new keys and values, and next, in the same forward pass, calls the attention
function, which gives the layer everything else: the queries, which tokens are padding, and where RoPE turned them.

Dimension key: B sequences, H key-value heads, Q new tokens, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from course_lib.kv.attention import attend
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE, PLAIN

if TYPE_CHECKING:
    from course_lib.kv.cache import EvictingCache

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
        valid = valid_tokens(keys, padding)
        slots, position = add(self.slots, keys, values, valid, rotation)
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


def valid_tokens(keys: Float[Tensor, "B H Q D"], padding: Tensor | None) -> Bool[Tensor, "B Q"]:
    """Which of the new tokens are text. `padding`: 1 for text and 0 for padding, of all tokens so far."""
    if padding is None:
        return torch.ones_like(keys[:, 0, :, 0], dtype=torch.bool)
    return padding[:, -keys.shape[2] :].bool()


def add(
    slots: Slots,
    keys: Float[Tensor, "B H Q D"],
    values: Float[Tensor, "B H Q D"],
    valid: Bool[Tensor, "B Q"],
    rotation: Int[Tensor, "b Q"] | None,
) -> tuple[Slots, Int[Tensor, "B Q"]]:
    """Slots with the new tokens, and their positions in the text, FREE for padding."""
    position = torch.where(valid, slots.n_seen[:, None] + valid.cumsum(dim=1) - 1, FREE)
    rotation = position if rotation is None else rotation.expand(len(keys), -1)
    return slots.append(keys, values, valid, rotation), position


@contextmanager
def attending(model: PreTrainedModel, cache: "EvictingCache") -> Iterator[None]:
    """Let a model read through such layers; on exit it is as before and the cache is of no more use."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, padding_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        cache.active = False
        model.set_attn_implementation(before)


def padding_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
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
