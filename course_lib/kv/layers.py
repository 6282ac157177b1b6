"""A cache of slots as a cache of transformers, layer by layer.

transformers first passes new keys and values to a layer of the cache. Then, in the same forward pass, it calls the
attention function (cache.py), which passes everything else to the cache: the queries, the padding, and the positions
at which RoPE rotated the keys.

Dimension key: B sequences, H key-value heads, Q new tokens, T tokens so far, D size of a head.
"""

from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from course_lib.kv.attend import attend_
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.rotation import RollingSlots, Rotation
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat
from course_lib.models import blocks

waiting: ContextVar["EvictingLayer | None"] = ContextVar(
    "the layer that has taken keys and not yet attended", default=None
)


class EvictingLayer(CacheLayerMixin):
    """The slots of one layer. It reports the length of the text to transformers, not the number of slots."""

    def __init__(self, cache: "EvictingCache", index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.slots: Slots | None = None
        self.n_passed = 0  # tokens that came, padding included

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        kind = RollingSlots if self.cache.rolling else Slots
        self.slots = kind.empty(key_states, self.cache.vectors)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Receive keys and values (B, H, Q, D); `EvictingCache.forward_` stores them in slots."""
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
        if not self.index and not self.cache.is_whole:
            raise ValueError(
                "got a cache whose last pass stopped between two layers, so that they hold different tokens; expected "
                "whole passes. Call cache.reset() and feed the text again, or make another cache."
            )
        if self.index and waiting.get() is not None:
            waiting.set(None)
            raise ValueError("got a cache in another model than that of its evicting(...), or in a copy of it.")
        waiting.set(self)
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self.n_passed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.n_passed + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def crop(self, max_length: int) -> None:
        raise ValueError(
            f"got crop({max_length}); evicted tokens cannot be restored, so a cache with eviction cannot be cropped."
        )

    def reset(self) -> None:
        self.slots, self.n_passed, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.slots is not None:
            rows = torch.arange(len(self.slots.n_seen), device=self.slots.n_seen.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.slots is not None:
            self.slots = self.slots.select(indices.to(self.slots.n_seen.device))


class EvictingCache(Cache):
    """The slots of all layers. Give it to `model(...)` or `model.generate(...)` as `past_key_values`."""

    layer = EvictingLayer

    def __init__(
        self,
        model: PreTrainedModel,
        policy: EvictionPolicy,
        rolling: Rotation | None,
        vectors: VectorFormat = FULL_PRECISION,
    ):
        super().__init__(layers=[self.layer(self, index) for index in range(len(blocks(model)))])
        self.policy, self.rolling, self.vectors, self.active = policy, rolling, vectors, True
        self.config = model.config
        self.n_evicted = 0  # slots, all layers together
        self._evicted_by_pass = 0
        self.is_whole = True  # False while a pass is on its way, and for good where one stopped there
        self.is_allocated = not policy.allocates_layers

    def forward_(
        self,
        layer: EvictingLayer,
        query: Float[Tensor, "B heads Q D"],
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        padding: Tensor | None,
        rotation: Int[Tensor, "_ Q"] | None,
        scaling: float,
    ) -> Float[Tensor, "B heads Q D"]:
        """Process new tokens in one layer: append them, attend, let the policy observe the weights, and evict."""
        new = self._new_tokens(layer, keys.shape[2], padding, rotation)
        layer.slots.append_(keys, values, new)
        fresh = None if self.vectors is FULL_PRECISION else (keys, values)  # are read before they are rounded
        output = attend_(query, layer.slots, new.position, scaling, self.policy, self.rolling, fresh)
        self._evict_(layer)
        return output

    def _new_tokens(
        self, layer: EvictingLayer, n_new: int, padding: Tensor | None, rotation: Int[Tensor, "_ Q"] | None
    ) -> NewTokens:
        """Return the new tokens; the first layer computes them for all layers."""
        if layer.index == 0:
            n_seen = layer.slots.n_seen
            if padding is None:
                self._new = NewTokens.unpadded(n_new, rotation, n_seen)
            else:
                self._new = NewTokens.of(_valid(padding, n_seen, n_new), rotation, n_seen)
            self.is_whole = False
        return self._new

    def passed(self, layer: EvictingLayer, n_new: int) -> None:
        """Count new tokens after a layer has processed them. A pass that raised an error is not counted."""
        layer.n_passed += n_new
        self.is_whole = layer is self.layers[-1]

    def _evict_(self, layer: EvictingLayer) -> None:
        """Evict from this layer. If the policy first divides the budget, evict from all layers after the last one."""
        due, n_evicted = [layer], self.n_evicted
        if not self.is_allocated:
            if layer is not self.layers[-1]:
                return
            self.policy.allocate_(self.slots)
            due, self.is_allocated = self.layers, True
        for layer in due:
            n_before = layer.slots.n
            self.policy.shrink(layer.slots, layer.index)
            self.n_evicted += n_before - layer.slots.n
        if layer is self.layers[0]:
            self._evicted_by_pass = 0
        self._evicted_by_pass += self.n_evicted - n_evicted

    def fill_(self, keys: Float[Tensor, "B H N D"], values: Float[Tensor, "B H N D"]) -> "EvictingCache":
        """Fill an empty cache with N tokens, without observed attention or eviction: for measurements of time.

        Every layer gets a copy of the same keys and values; the keys count as rotated to the positions 0 to N − 1. All
        numbers that policies remember are 0. The next pass evicts the tokens above the policy's budget.
        """
        for layer in self.layers:
            if layer.is_initialized:
                raise ValueError("got a cache that holds tokens; expected a fresh one. Call cache.reset() first.")
            layer.lazy_initialization(keys, values)
            layer.slots.append_(keys, values, NewTokens.unpadded(keys.shape[2], None, layer.slots.n_seen))
            self.passed(layer, keys.shape[2])
        return self

    def count_replayed(self, n_steps: int) -> None:
        """Count the steps of a replayed CUDA graph, which runs no Python code; each evicts as much as the last pass.

        Capturing a step counts it once, although it runs only in the first replay. So n replays need `n_steps` = n − 1.
        """
        for layer in self.layers:
            layer.n_passed += n_steps
        self.n_evicted += n_steps * self._evicted_by_pass

    def reset(self) -> None:
        """Return to the state before the first pass, for another text."""
        super().reset()
        self.is_whole = True
        self.is_allocated = not self.policy.allocates_layers

    @property
    def slots(self) -> list[Slots]:
        """The slots of each layer; empty before the first forward pass."""
        return [layer.slots for layer in self.layers if layer.slots is not None]

    @property
    def stores(self) -> list[Slots]:
        """All slots in memory."""
        return self.slots

    @property
    def bytes_held(self) -> int:
        """Bytes of the keys and values of the tokens that are kept."""
        return sum(slots.bytes_held for slots in self.stores)

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all storage, including spare and FREE slots, positions, and numbers that the policy remembers."""
        return sum(slots.bytes_allocated for slots in self.stores)

    @property
    def bytes_of_all(self) -> int:
        """Bytes of the keys and values of all tokens so far, as in a cache without eviction."""
        return sum(int(slots.n_seen.sum()) * slots.shape[1] * slots.bytes_unpacked for slots in self.slots)


def _valid(padding: Tensor, n_seen: Int[Tensor, "B"], n_new: int) -> Bool[Tensor, "B Q"]:
    """Return which of the new tokens are not padding. The mask (B, T) has 1 for text and 0 for padding.

    Raises:
        ValueError: a mask that differs from earlier masks in earlier tokens, or padding that is not on the left.
    """
    if not torch.equal(padding[:, :-n_new].bool().sum(dim=1), n_seen):
        raise ValueError(
            f"got an attention mask of shape {tuple(padding.shape)} that differs from the last one in earlier tokens; "
            "expected a column for each token so far. The policy evicts tokens, not the mask."
        )
    valid = padding[:, -n_new:].bool()
    if bool((~valid & (n_seen[:, None] + valid.cumsum(dim=1) > 0)).any()):
        raise ValueError('got padding after a token; expected it on the left: tokenizer.padding_side = "left".')
    return valid
