"""`with evicting(model, policy) as cache:` — the model attends over slots, and what the policy lets go is gone.

A registered attention function and a cache layer are all there is; no class of the model is touched.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from course_lib.kv.layer import NAME, Arrival, EvictingLayer, attending
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import PLAIN, Vectors
from course_lib.models import blocks, heads, rotary_frequencies


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
    cache = EvictingCache(model, policy, rolling, vectors)
    with attending(model, cache):
        yield cache
    if cache.slots and not cache.n_evicted and not policy.keeps_all:
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
    check_model(model)
    n_layers, n_heads = len(blocks(model)), heads(model).n_key_value
    for name, expected in (("by_layer", n_layers), ("by_head", n_heads)):
        factors = getattr(policy, name)
        if factors and len(factors) != expected:
            raise ValueError(f"got {len(factors)} factors in {name}; expected {expected}, as many as the model has.")


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model that is inside such a block, or whose layers forget by themselves."""
    if model.config._attn_implementation == NAME:
        raise ValueError("got a model that is evicting already; leave its `with` block first.")
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(model.config, "sliding_window", None):
        raise ValueError(f"got a model whose layers have windows of their own ({kinds or 'sliding_window'}).")
