"""Attention over slots: grouped queries share their keys without copies, and policies see the weights chunk by chunk.

The weights of a whole prompt are never in memory at once: Q × N numbers a head would be 150 MB for 2048 tokens of the
default model, a layer.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries (q of them in a chunk), N slots,
D size of a head.
"""

from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import FREE, Slots

CHUNK = 2**21  # attention weights in memory at once


def attend(
    query: Float[Tensor, "B heads Q D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
    rolling: Rotation | None = None,
    fresh: tuple[Float[Tensor, "B H Q D"], Float[Tensor, "B H Q D"]] | None = None,
) -> tuple[Float[Tensor, "B heads Q D"], Slots]:
    """What the queries read, and the slots with what the policy remembers of it.

    Args:
        position: of the queries, counted as in Slots; FREE for padding, whose output means nothing.
        rolling: turn the keys to their places among the slots first.
        fresh: keys and values of the new tokens, which are the last slots, where stored ones differ.
    """
    query = query.unflatten(1, (slots.shape[1], -1))  # (B, H, G, Q, D): neighbouring query heads share their keys
    keys, values = slots.keys, slots.values
    if fresh:
        before = slots.n - fresh[0].shape[2]
        keys = torch.cat([keys[:, :, :before], fresh[0]], dim=2)
        values = torch.cat([values[:, :, :before], fresh[1]], dim=2)
    with rolling.turning(keys, slots) if rolling else nullcontext():
        return _attend(query, keys, values, slots, position, scaling, policy)


def _attend(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
) -> tuple[Float[Tensor, "B heads Q D"], Slots]:
    """All weights explicit where all are wanted; else torch's fused attention, and once more those that are."""
    n_queries = query.shape[3]
    n_observed = min(policy.observed(n_queries), n_queries)
    if n_observed == n_queries:
        output, slots = _observed(query, keys, values, slots, position, scaling, policy)
        return output.flatten(1, 2), slots
    output = _unobserved(query, keys, values, slots, position, scaling)
    if n_observed:
        last = query[:, :, :, -n_observed:], keys, values, slots, position[:, -n_observed:]
        _, slots = _observed(*last, scaling, policy)
    return output.flatten(1, 2), slots


def _unobserved(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
) -> Float[Tensor, "B H G Q D"]:
    """Nobody wants the weights, so that torch's fused attention may keep them to itself."""
    n_queries = query.shape[3]
    if n_queries == 1 and not slots.has_free:  # one token: the group stands in for the queries
        return scaled_dot_product_attention(query[:, :, :, 0], keys, values, scale=scaling)[:, :, :, None]
    if n_queries == slots.n and not slots.has_free:  # the first pass, in the order of the text
        flat = scaled_dot_product_attention(
            query.flatten(1, 2), keys, values, is_causal=True, scale=scaling, enable_gqa=True
        )
        return flat.view_as(query)
    outputs = []
    for start, end in _chunks(query, slots.n):
        allowed = visible(slots, position[:, start:end])[:, :, None].expand(-1, -1, query.shape[2], -1, -1)
        read = scaled_dot_product_attention(
            query[:, :, :, start:end].flatten(2, 3), keys, values, attn_mask=allowed.flatten(2, 3), scale=scaling
        )
        outputs.append(read.unflatten(2, (-1, end - start)))
    return torch.cat(outputs, dim=3)


def _observed(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
) -> tuple[Float[Tensor, "B H G Q D"], Slots]:
    """The weights of some queries at a time are shown to the policy. In the first pass later keys are left out."""
    outputs, first_pass, last = [], query.shape[3] == slots.n, slots.n_seen - 1
    every_key, every_value = keys.flatten(0, 1), values.flatten(0, 1)  # (B·H, N, D), for the fastest product
    for start, end in _chunks(query, slots.n):
        n = end if first_pass else slots.n
        some, at, asked = slots.first(n), position[:, start:end], query[:, :, :, start:end] * scaling
        logits = torch.bmm(asked.flatten(0, 1).flatten(1, 2), every_key[:, :n].transpose(1, 2))  # (B·H, G·q, n)
        if query.shape[3] > 1 or slots.has_free:  # a chunk of one query has later keys too
            later = start if first_pass and not slots.has_free else 0  # slots before it are read by the whole chunk
            hidden = ~visible(some, at)[..., later:].flatten(0, 1)[:, None]
            logits.unflatten(1, (-1, end - start))[..., later:].masked_fill_(hidden, float("-inf"))
        weights = logits.softmax(dim=-1, dtype=torch.float32)
        if slots.has_free:
            weights = weights * (at != FREE).repeat_interleave(keys.shape[1], 0).repeat(1, query.shape[2])[..., None]
        outputs.append(torch.bmm(weights.to(keys.dtype), every_value[:, :n]).view_as(asked))
        seen = Observed(weights.view(*asked.shape[:4], n), at, last, start == 0)
        slots = slots.remembering(policy.remember(some, seen))
    return torch.cat(outputs, dim=3) if len(outputs) > 1 else outputs[0], slots


def visible(slots: Slots, position: Int[Tensor, "B Q"]) -> Bool[Tensor, "B H Q N"]:
    """Which slots each query may read: its own and earlier tokens."""
    return slots.position[:, :, None, :] <= position[:, None, :, None]


def _chunks(query: Float[Tensor, "B H G Q D"], n: int) -> list[tuple[int, int]]:
    n_queries = query.shape[3]
    size = max(1, CHUNK // (query.shape[:3].numel() * n))
    return [(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]
