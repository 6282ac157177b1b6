"""Caches for timing a decoding step; they are filled directly, as if a prompt had been read.

Dimension key: B sequences, H key-value heads, N slots, D size of a head.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.random_llama import on_device
from torch import Tensor
from transformers import PreTrainedModel, StaticCache

from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.snapkv import SnapKV
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.recycled import Recycled, recycling
from course_lib.measure.roofline import Transformer, Work
from course_lib.models import heads

FULL, STATIC = "Full", "StaticCache, sdpa"
WINDOW, STREAMING, SNAPKV = "window, 20 %", "StreamingLLM, 20 %", "SnapKV, 20 %"
H2O_KEPT, LOW_BITS = "H2O, 20 %", "H2O, 20 %, 4 bits"
FULL_STEP, RECYCLED = "recycled, a full step", "recycled, 20 % read"
D2O_KEPT = "D2O, 20 %"
METHODS = (FULL, STATIC, WINDOW, STREAMING, H2O_KEPT, LOW_BITS, SNAPKV, FULL_STEP, RECYCLED)
SHARE = 0.2  # of the tokens, that the methods keep or read
EVERY = Recycled().every  # steps of recycled attention, of which one is full
ROOM = 64  # slots ahead, for the steps that are timed
NOTES = 0.02  # bytes of position and mass, for each byte of a slot's key and value
MERGING = 6  # copies of a layer's keys and values: some are in float32
KEY_SCALE = 2.5  # of the slots: attention to keys that are all equally good would average the values away


@dataclass(frozen=True)
class FilledCache:
    """The cache of a method after `n_context` tokens of each sequence; policies with eviction are at their budget."""

    method: str
    n_context: int
    n_sequences: int

    @property
    def n_kept(self) -> int:
        """Return the number of kept tokens, with which most methods still have tokens to evict."""
        return int(SHARE * self.n_context)

    @property
    def n_held(self) -> int:
        """Return the slots per head. Recycled attention evicts nothing, and stores the tokens that it reads twice."""
        if self.method in (FULL_STEP, RECYCLED):
            return self.n_context + self.n_kept
        return self.n_read

    @property
    def n_read(self) -> int:
        """Return the slots that the attention of a step reads."""
        return self.n_context if self.method in (FULL, STATIC, FULL_STEP) else self.n_kept

    def vector_bytes(self, shape: Transformer, number_bytes: int, n_slots: int) -> float:
        """Return the bytes of keys and values in `n_slots` slots; in 4 bits, 32 numbers share two 16-bit numbers."""
        n_bytes = shape.cache_bytes(n_slots, self.n_sequences, number_bytes)
        return n_bytes * (4 + 2 * 16 / 32) / (8 * number_bytes) if self.method == LOW_BITS else n_bytes

    def bytes_needed(self, shape: Transformer, number_bytes: int) -> float:
        """Return the total bytes, with columns of the slots, slots ahead and, for D2O, the memory to merge a layer."""
        n_bytes = self.vector_bytes(shape, number_bytes, self.n_held + ROOM)
        return n_bytes * (1 + NOTES + (MERGING / shape.n_blocks if self.method == D2O_KEPT else 0))

    def work(self, shape: Transformer, number_bytes: int) -> Work:
        """Count the work of a step: every matrix is read once, and the part of the cache that attention needs."""
        step = shape.decode_step(self.n_read, self.n_sequences, number_bytes)
        spared = shape.cache_bytes(self.n_read, self.n_sequences, number_bytes)
        return Work(step.flops, step.bytes - spared + self.vector_bytes(shape, number_bytes, self.n_read))

    @contextmanager
    def opened(self, model: PreTrainedModel, place: Place) -> Iterator[EvictingCache | StaticCache]:
        """Inside, the model attends through the cache. All layers hold the same keys and values."""
        if self.method == STATIC:
            yield self._static(model, place)
            return
        policy, settings = _policy(self.method, self.n_kept)
        opened = recycling if isinstance(policy, Recycled) else evicting
        n_filled = self.n_context if isinstance(policy, Recycled) else self.n_held
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", UserWarning)  # that nothing was evicted, as SnapKV does not in a step
            with opened(model, policy, **settings) as cache:
                try:
                    cache.fill_(*self._vectors(model, place, n_filled))
                    if isinstance(policy, D2O):
                        _divide_evenly(cache)
                    yield cache
                finally:
                    cache.reset()  # it refers to itself, so that its memory would wait for the garbage collector

    def _static(self, model: PreTrainedModel, place: Place) -> StaticCache:
        cache = StaticCache(config=model.config, max_cache_len=self.n_context + ROOM)
        keys, values = self._vectors(model, place, self.n_context)
        for index in range(model.config.num_hidden_layers):
            cache.update(keys, values, index)
        return cache

    def _vectors(self, model: PreTrainedModel, place: Place, n_slots: int) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, N, D), equal in all calls and sequences; views of one sequence save memory."""
        size, generator = heads(model), on_device(place)
        shape, settings = (1, size.n_key_value, n_slots, size.size), {"generator": generator}
        keys, values = (torch.randn(shape, dtype=place.dtype, device=place.device, **settings) for _ in range(2))
        return tuple(each.expand(self.n_sequences, -1, -1, -1) for each in (keys.mul_(KEY_SCALE), values))


def bytes_allocated(cache: EvictingCache | StaticCache) -> int:
    """Return the bytes of all storage of a cache."""
    if isinstance(cache, StaticCache):
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    return cache.bytes_allocated


def _divide_evenly(cache: EvictingCache) -> None:
    """Give every layer the same part of D2O's budget, so that each evicts and merges in every step."""
    for slots in cache.slots:
        slots.per_head["share"] = torch.ones(slots.shape, device=slots.position.device)
    cache.is_allocated = True


def _policy(method: str, n_kept: int) -> tuple[EvictionPolicy, dict[str, Any]]:
    """Return the policy, and the settings of the cache."""
    h2o = H2O(budget=n_kept, recent=n_kept // 2)
    policies: dict[str, tuple[EvictionPolicy, dict[str, Any]]] = {
        FULL: (Full(), {}),
        WINDOW: (Window(budget=n_kept), {}),
        STREAMING: (StreamingLLM(budget=n_kept), {"positions": "rolling"}),
        H2O_KEPT: (h2o, {}),
        LOW_BITS: (h2o, {"vectors": Quantized(bits=4)}),
        SNAPKV: (SnapKV(budget=n_kept, recent=min(64, n_kept)), {}),
        D2O_KEPT: (D2O(budget=n_kept, recent=n_kept // 2, spared=()), {}),
        FULL_STEP: (Recycled(budget=n_kept, every=1), {}),
        RECYCLED: (Recycled(budget=n_kept, every=None), {}),
    }
    return policies[method]
