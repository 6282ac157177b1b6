"""A cache of slots, layer by layer, as transformers knows caches.

transformers asks a layer to take new keys and values, and next, in the same forward pass, calls the attention function
(cache.py), which gives the layer everything else: the queries, which tokens are padding, and where RoPE turned them.

Dimension key: B sequences, H key-value heads, Q new tokens, D size of a head.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from course_lib.kv.attend import attend
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE, PLAIN, Vectors
from course_lib.models import blocks

waiting: ContextVar["EvictingLayer | None"] = ContextVar(
    "the layer that has taken keys and not yet attended", default=None
)


@dataclass(frozen=True)
class Arrival:
    """The new tokens of a forward pass: the same for all layers. Fields as in `Slots.added`."""

    position: Int[Tensor, "B Q"]
    rotation: Int[Tensor, "B Q"]
    n_seen: Int[Tensor, "B"]
    has_free: bool

    @staticmethod
    def of(
        n_seen: Int[Tensor, "B"], n_new: int, padding: Tensor | None, rotation: Int[Tensor, "b Q"] | None
    ) -> "Arrival":
        """`padding`: 1 for text and 0 for padding, of all tokens so far.

        Raises:
            ValueError: a mask that changes its mind about earlier tokens, or padding that is not on the left.
        """
        if padding is not None and not torch.equal(padding[:, :-n_new].bool().sum(dim=1), n_seen):
            raise ValueError(
                f"got an attention mask of shape {tuple(padding.shape)} that does not say of earlier tokens what it "
                "said before; expected a column for each token so far. Tokens leave by the policy, not by the mask."
            )
        valid = None if padding is None else padding[:, -n_new:].bool()
        if valid is None or bool(valid.all()):
            position = n_seen[:, None] + torch.arange(n_new, device=n_seen.device)
            after, has_free = n_seen + n_new, False
        else:
            count = n_seen[:, None] + valid.cumsum(dim=1)
            if bool((~valid & (count > 0)).any()):
                raise ValueError(
                    'got padding behind a token; expected it on the left: tokenizer.padding_side = "left".'
                )
            position = torch.where(valid, count - 1, FREE)
            after, has_free = n_seen + valid.sum(dim=1), True
        rotation = position if rotation is None else rotation.expand(len(n_seen), -1)
        return Arrival(position, rotation, after, has_free)

    def added_to(self, slots: Slots, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"]) -> Slots:
        return slots.added(keys, values, self.position, self.rotation, self.n_seen, self.has_free)


class EvictingLayer(CacheLayerMixin):
    """One layer's slots. Lengths that transformers asks for are those of the text, not of what is left of it."""

    def __init__(self, cache: "EvictingCache", index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.slots: Slots | None = None
        self.n_passed = 0  # tokens that came, padding included

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.slots = Slots.empty(key_states, self.cache.vectors, rolling=self.cache.rolling is not None)
        self.is_initialized = True

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
        if self.index and waiting.get() is not None:
            waiting.set(None)
            raise ValueError("got a cache in another model than that of its evicting(...), or in a copy of it.")
        waiting.set(self)
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
        new = self.cache.arrival(self, keys, padding, rotation)
        slots = new.added_to(self.slots, keys, values)
        fresh = (keys, values) if self.cache.vectors is not PLAIN else None
        output, self.slots = attend(query, slots, new.position, scaling, self.cache.policy, self.cache.rolling, fresh)
        self.cache.shrink(self.index)
        return output

    def get_seq_length(self) -> int:
        return self.n_passed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.n_passed + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def crop(self, max_length: int) -> None:
        raise ValueError(
            f"got crop({max_length}); tokens that have left cannot come back, so nothing can be undone here."
        )

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

    layer = EvictingLayer

    def __init__(
        self, model: PreTrainedModel, policy: EvictionPolicy, rolling: Rotation | None, vectors: Vectors = PLAIN
    ):
        super().__init__(layers=[self.layer(self, index) for index in range(len(blocks(model)))])
        self.policy, self.rolling, self.vectors, self.active = policy, rolling, vectors, True
        self.config = model.config
        self.n_evicted = 0  # slots, all layers together
        self.planned = not policy.plans

    def arrival(self, layer: EvictingLayer, keys: Tensor, padding: Tensor | None, rotation: Tensor | None) -> Arrival:
        """The new tokens, worked out by the first layer for all."""
        if layer.index == 0:
            self._arrival = Arrival.of(layer.slots.n_seen, keys.shape[2], padding, rotation)
        return self._arrival

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
    def stores(self) -> list[Slots]:
        """All that is in memory."""
        return self.slots

    @property
    def bytes_held(self) -> int:
        """Keys and values of the tokens that are kept."""
        return sum(each.bytes_of_vectors for each in self.stores)

    @property
    def bytes_allocated(self) -> int:
        """All storage: also slots ahead, FREE ones, positions and what the policy remembers."""
        tensors = [tensor for each in self.stores for tensor in (*each.storage.values(), *each.per_head.values())]
        return sum(tensor.nbytes for tensor in tensors)

    @property
    def bytes_of_all(self) -> int:
        """Keys and values of every token seen, as a cache that forgets nothing would hold."""
        return sum(int(each.n_seen.sum()) * each.shape[1] * each.bytes_unpacked for each in self.slots)
