"""The contents of a cache as tensors. Keys and values that are not quantized count in 16 bits.

Dimension key: B sequences, H key-value heads, C allocated slots, N tokens of a text.
"""

from transformers.cache_utils import Cache

from course_lib.compose.part import Stored
from course_lib.kv.layers import EvictingCache
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FULL_PRECISION, VECTORS


def cache_tensors(cache: Cache) -> Stored:
    """Return the contents of each layer: slots in use, the ring of newest tokens, and what a policy remembers."""
    found: Stored = {}
    for index, layer in enumerate(cache.layers):
        parts = _of_slots(layer.slots) if isinstance(cache, EvictingCache) else _keys_and_values(layer)
        found |= {f"{index}/{name}": tensor.contiguous() for name, tensor in parts.items()}
    return found


def _of_slots(slots: Slots) -> Stored:
    """Return vectors in full precision as float16, and everything else unchanged."""
    plain = slots.vectors is FULL_PRECISION
    parts = {name: tensor[:, :, : slots.n] for name, tensor in slots.storage.items()}
    parts = {name: part.half() if plain and name in VECTORS else part for name, part in parts.items()}
    ring = {f"ring.{name}": part.half() for name, part in slots.ring.vectors.items()} if slots.ring else {}
    return parts | ring | {f"head.{name}": part for name, part in slots.per_head.items()}


def _keys_and_values(layer: object) -> Stored:
    return {"keys": layer.keys.half(), "values": layer.values.half()}


def n_slots(cache: Cache) -> int:
    """Count the stored tokens over all layers and key-value heads of one sequence."""
    if isinstance(cache, EvictingCache):
        return sum(int(slots.occupied.sum()) for slots in cache.slots)
    return sum(layer.keys.shape[1] * layer.keys.shape[2] for layer in cache.layers)
