"""Bytes that a recipe should store, by formula: from its settings and the sizes of the model. `account` counts tensors.

The two counts are independent and agree to the byte, so each confirms the other.

Dimension key: H key-value heads, D size of a head, N tokens, P vectors of a prompt.
"""

from functools import lru_cache

import torch

from course_lib.compose.build import Built
from course_lib.compose.counting.account import NUMBER_BYTES
from course_lib.compose.part import tables_of
from course_lib.kv.cache import evicting
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.quantized import Quantized
from course_lib.kv.vectors import VECTORS, VectorFormat
from course_lib.models import blocks, heads, layers_of, tiny_model, weight_of

POSITION_BYTES, GRID_BYTES = 4, 4  # of a slot's int32; minimum and step of a group, a float16 each


def stored_bytes(built: Built) -> int:
    """Compute the bytes of weights and of everything stored with them."""
    model, recipe = built.model, built.recipe
    sizes = {
        "dense": sum(weight_of(layer.module).numel() for layer in layers_of(model)),
        "table": sum(weight.numel() for weight in tables_of(model).values()),
    }
    untouched = sum(parameter.numel() for parameter in model.parameters())
    untouched -= sum(sizes[what] for what in {part.replaces for part in recipe.parts} - {""})
    return NUMBER_BYTES * untouched + sum(part.n_bytes(built.made) for part in recipe.parts)


def cache_bytes(built: Built, n_tokens: int) -> int:
    """Compute the bytes of keys, values, positions and a policy's memory, after a text read in one pass and its prompt.

    The formula assumes a text longer than the budget: a merging policy stores more per slot only after its first merge.

    Raises:
        ValueError: a policy whose slots per layer depend on the text, or which drops more tokens than necessary: there
            is no formula for its number of slots.
    """
    model, prompt, part = built.model, built.made.found.get("prompt"), built.recipe.part("cache")
    n_tokens += prompt.n if prompt else 0
    shape, n_layers = heads(model), len(blocks(model))
    if part is None:
        return n_layers * shape.n_key_value * n_tokens * 2 * NUMBER_BYTES * shape.size
    policy, vectors = part.eviction, part.vectors
    if policy.allocates_layers or policy.dropped:
        raise ValueError(f"got {type(policy).__name__}, whose slots depend on the text; count its tensors.")
    slots = sum(_slots(policy, layer, shape.n_key_value, n_tokens) for layer in range(n_layers))
    a_slot = POSITION_BYTES + 2 * _vector_bytes(vectors, shape.size) + remembered_bytes(type(policy), part.positions)
    ring = n_layers * shape.n_key_value * vectors.residual * 2 * NUMBER_BYTES * shape.size
    return slots * a_slot + ring


def _slots(policy: EvictionPolicy, layer: int, n_heads: int, n_tokens: int) -> int:
    """Return min(tokens, budget · factors) for each head; all heads have as many slots as the largest."""
    if policy.keeps_all:
        return n_heads * n_tokens
    factors = policy.by_head or (1.0,) * n_heads
    layer_factor = policy.by_layer[layer] if policy.by_layer else 1.0
    budget = policy.budget if isinstance(policy.budget, int) else policy.budget * n_tokens
    most = max(int(budget * layer_factor * factor + 1e-9) for factor in factors)
    return n_heads * min(n_tokens, max(most, 1, policy.sinks + policy.recent))


def _vector_bytes(vectors: VectorFormat, size: int) -> int:
    """Return the bytes of one key or value."""
    if isinstance(vectors, Quantized):
        return size * vectors.bits // 8 + GRID_BYTES * (size // min(vectors.group, size))
    return NUMBER_BYTES * size


@lru_cache
def remembered_bytes(kind: type[EvictionPolicy], positions: str) -> int:
    """Count the other bytes of a slot (not keys, values, position), after a tiny model has evicted a few tokens."""
    model, policy = tiny_model(), kind(budget=2, sinks=0, recent=1)
    with evicting(model, policy, positions) as cache, torch.no_grad():
        model(torch.arange(4)[None], past_key_values=cache, use_cache=True)
    storage = cache.slots[0].storage
    return sum(t[0, 0, :1].nbytes for name, t in storage.items() if name not in (*VECTORS, "position"))
