"""Attention over slots: grouped queries share their keys without copies, and policies see the weights chunk by chunk.

The weights of a whole prompt are never in memory at once: Q × N numbers per head would be 150 MB for 2048 tokens of the
default model, a layer.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries (q of them in a chunk), N slots (n of
them for a chunk to read), D size of a head.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.kernels.dispatch import kernel_for
from course_lib.kv.policy import EvictionPolicy, Observed, ObservedMass
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE

CHUNK = 2**21  # attention weights in memory at once
CHUNK_ON_GPU = 2**28  # there the launches of many small chunks would take longer than their work


def attend_(
    query: Float[Tensor, "B heads Q D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
    rolling: Rotation | None = None,
    fresh: tuple[Float[Tensor, "B H Q D"], Float[Tensor, "B H Q D"]] | None = None,
) -> Float[Tensor, "B heads Q D"]:
    """The output of attention; the policy's notes on its weights are written into the slots.

    Args:
        position: of the queries, counted as in Slots; FREE for padding, whose output means nothing.
        rolling: turn the keys to their places among the slots, RollingSlots, first.
        fresh: keys and values of the new tokens, which are the last slots, where stored ones differ.
    """
    query = query.unflatten(1, (slots.shape[1], -1))  # (B, H, G, Q, D): neighbouring query heads share their keys
    n_queries = query.shape[3]
    if fresh and not (slots.ring and n_queries == 1):  # a ring holds the newest token as it came
        keys, values = _with_fresh(slots, fresh)  # (B, H, N, D)
    else:
        keys, values = slots.keys, slots.values
    n_observed = min(policy.n_observed(n_queries), n_queries)
    if n_queries == 1 and (n_observed or rolling):
        kernel = kernel_for("cache.decode_attention", query, keys, values)
        if kernel:
            return _one_token_(kernel, query, keys, values, slots, position, scaling, policy, rolling)
    with rolling.turning_(keys, slots) if rolling else nullcontext():
        if n_observed and n_queries == slots.n and policy.sums_queries and _is_plain_prompt(query, keys, slots):
            output = _prompt_(query, keys, values, slots, position, scaling, policy, n_observed)
        elif n_observed == n_queries:
            output = _observed_(query, keys, values, slots, position, scaling, policy)
        else:  # torch's fused attention, and once more the queries whose weights are wanted
            output = _fused(query, keys, values, slots, position, scaling)
            if n_observed:
                query, position = query[:, :, :, -n_observed:], position[:, -n_observed:]
                _observed_(query, keys, values, slots, position, scaling, policy)
    return output.flatten(1, 2)


def _one_token_(
    kernel: ModuleType,
    query: Float[Tensor, "B H G 1 D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B 1"],
    scaling: float,
    policy: EvictionPolicy,
    rolling: Rotation | None,
) -> Float[Tensor, "B heads 1 D"]:
    """A step of decoding on a GPU: the kernel sums each slot's weights over the group, and turns keys as it loads them.

    Nothing waits for the device, unless a policy asks for weights that the kernel does not give.
    """
    turned = (slots.gap, rolling.frequencies) if rolling else ()
    wanted = bool(policy.n_observed(1))
    heads, at = query.flatten(1, 3).contiguous(), position[:, 0].contiguous()
    slot_position = slots.position if slots.has_free else None  # the newest token sees all others
    read = kernel.launch(heads, keys, values, at, slot_position, scaling, *turned, with_mass=wanted)
    if wanted:

        def weights() -> Float[Tensor, "B H G 1 N"]:
            with rolling.turning_(keys, slots) if rolling else nullcontext():
                return next(_rows(query, keys, slots, position, scaling))[1].weights

        seen = ObservedMass(read.mass, query.shape[2], position, slots.n_seen - 1, weights)
        slots.remember_(policy.remember(slots, seen))
    return read.output[:, :, None]


def _is_plain_prompt(query: Float[Tensor, "B H G Q D"], keys: Float[Tensor, "B H N D"], slots: Slots) -> bool:
    """Whether a whole prompt without padding is read on a GPU, whose fused attention gives what the kernel needs."""
    return query.shape[3] > 1 and not slots.has_free and kernel_for("cache.attention_mass", query, keys) is not None


def _prompt_(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
    n_observed: int,
) -> Float[Tensor, "B H G Q D"]:
    """Fused attention, and what each key received of the last queries by the logarithms of their sums."""
    kernel, last = kernel_for("cache.attention_mass", query, keys), slice(query.shape[3] - n_observed, None)
    output, lse = _fused_with_sums(kernel, query, keys, values, slots, position, scaling, last)
    heads, at = query[:, :, :, last].flatten(1, 2).contiguous(), position[:, last].contiguous()
    received = kernel.launch(heads, keys, lse, at, slots.position, scaling)

    def weights() -> Float[Tensor, "B H G Q N"]:
        logits = _logits(query[:, :, :, last] * scaling, keys)
        _hide_later_(logits, slots, at, 0)
        return logits.softmax(dim=-1, dtype=torch.float32).view(*query.shape[:3], n_observed, slots.n)

    seen = ObservedMass(received, query.shape[2], at, slots.n_seen - 1, weights)
    slots.remember_(policy.remember(slots, seen))
    return output


def _fused_with_sums(
    kernel: ModuleType,
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    last: slice,
) -> tuple[Float[Tensor, "B H G Q D"], Float[Tensor, "B heads q"]]:
    """Of a whole prompt; for its last queries the log of Σ_k exp(l_ik), which fused attention computes anyway."""
    if (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[4] % 8 == 0
        and query.shape[4] <= 256
    ):
        heads = query.flatten(1, 2)
        repeated = (vectors.repeat_interleave(query.shape[2], dim=1) for vectors in (keys, values))  # as torch does it
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        output, lse, *_ = flash(heads, *repeated, 0.0, True, False, scale=scaling)
        return output.view_as(query), lse[:, :, last].contiguous()
    output = _fused(query, keys, values, slots, position, scaling)
    heads, at = query[:, :, :, last].flatten(1, 2), position[:, last]
    return output, kernel.log_sum_exp(heads, keys, at, slots.position, scaling)


def _with_fresh(
    slots: Slots, fresh: tuple[Float[Tensor, "B H Q D"], Float[Tensor, "B H Q D"]]
) -> tuple[Float[Tensor, "B H N D"], Float[Tensor, "B H N D"]]:
    """Keys and values, those of the newest tokens as they came."""
    n_before = slots.n - fresh[0].shape[2]
    stored = slots.keys, slots.values
    return tuple(torch.cat([old[:, :, :n_before], new], dim=2) for old, new in zip(stored, fresh, strict=True))


def _observed_(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
) -> Float[Tensor, "B H G Q D"]:
    """o_i = Σ_j A_ij v_j with explicit weights, some queries at a time, which are shown to the policy."""
    outputs = []
    for readable, seen in _rows(query, keys, slots, position, scaling):
        weights = seen.weights.flatten(0, 1).flatten(1, 2)  # (B·H, G·q, n)
        output = torch.bmm(weights.to(values.dtype), values[:, :, : readable.n].flatten(0, 1))  # (B·H, G·q, D)
        outputs.append(output.view(*seen.weights.shape[:4], -1))  # (B, H, G, q, D)
        slots.remember_(policy.remember(readable, seen))
    return torch.cat(outputs, dim=3) if len(outputs) > 1 else outputs[0]


def _rows(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
) -> Iterator[tuple[Slots, Observed]]:
    """A_ij = exp(l_ij) / Σ_k exp(l_ik) with l = scaling · q kᵀ: for a chunk of queries, and the slots it may read."""
    last = slots.n_seen - 1
    is_first_pass = query.shape[3] == slots.n  # in the order of the text: slots behind a chunk's last query are later
    for start, end in _chunks(query, slots.n):
        readable = slots.first(end if is_first_pass else slots.n)
        chunk, at = query[:, :, :, start:end], position[:, start:end]  # (B, H, G, q, D), (B, q)
        logits = _logits(chunk * scaling, keys[:, :, : readable.n])  # (B·H, G·q, n)
        if query.shape[3] > 1 or slots.has_free:  # a chunk of one query has later keys too
            # In the first pass the slots before a chunk are earlier tokens, which need no mask, or FREE.
            _hide_later_(logits, readable, at, start if is_first_pass and not slots.has_free else 0)
        weights = logits.softmax(dim=-1, dtype=torch.float32).view(*chunk.shape[:4], readable.n)  # (B, H, G, q, n)
        if slots.has_free:
            weights = weights * (at != FREE)[:, None, None, :, None]  # padding gives nothing
        yield readable, Observed(weights, at, last, is_first=start == 0)


def _logits(query: Float[Tensor, "B H G q D"], keys: Float[Tensor, "B H n D"]) -> Float[Tensor, "BH Gq n"]:
    """q kᵀ, the queries of a group as rows of one matrix: a batch of three axes is the fastest product."""
    return torch.bmm(query.flatten(0, 1).flatten(1, 2), keys.flatten(0, 1).transpose(1, 2))


def _hide_later_(logits: Float[Tensor, "BH Gq n"], slots: Slots, position: Int[Tensor, "B q"], start: int) -> None:
    """−∞ where a slot from `start` on holds a later token than the query's."""
    hidden = ~visible(slots, position)[..., start:].flatten(0, 1)  # (B·H, q, n − start)
    by_query = logits.unflatten(1, (-1, position.shape[1]))  # (B·H, G, q, n)
    by_query[..., start:].masked_fill_(hidden[:, None], float("-inf"))


def _fused(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
) -> Float[Tensor, "B H G Q D"]:
    """Attend with torch's fused attention, which returns no weights, where no policy needs them."""
    n_queries = query.shape[3]
    if n_queries == 1 and not slots.has_free:  # one token: the group stands in for the queries
        return scaled_dot_product_attention(query[:, :, :, 0], keys, values, scale=scaling)[:, :, :, None]
    if n_queries == slots.n and not slots.has_free:  # the first pass, in the order of the text
        heads = query.flatten(1, 2)  # (B, heads, Q, D)
        output = scaled_dot_product_attention(heads, keys, values, is_causal=True, scale=scaling, enable_gqa=True)
        return output.view_as(query)
    outputs = []
    for start, end in _chunks(query, slots.n):
        rows = query[:, :, :, start:end].flatten(2, 3)  # (B, H, G·q, D)
        allowed = visible(slots, position[:, start:end])[:, :, None].expand(-1, -1, query.shape[2], -1, -1)
        output = scaled_dot_product_attention(rows, keys, values, attn_mask=allowed.flatten(2, 3), scale=scaling)
        outputs.append(output.unflatten(2, (-1, end - start)))  # (B, H, G, q, D)
    return torch.cat(outputs, dim=3)


def visible(slots: Slots, position: Int[Tensor, "B Q"]) -> Bool[Tensor, "B H Q N"]:
    """Which slots each query may read: its own and earlier tokens."""
    return slots.position[:, :, None, :] <= position[:, None, :, None]


def _chunks(query: Float[Tensor, "B H G Q D"], n: int) -> list[tuple[int, int]]:
    """First and last query of each chunk, of which the weights over n slots fit into CHUNK numbers."""
    n_queries = query.shape[3]
    size = max(1, (CHUNK_ON_GPU if query.is_cuda else CHUNK) // (query.shape[:3].numel() * n))
    return [(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]
