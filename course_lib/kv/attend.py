"""Attention over slots: query heads of a group share keys without copies; policies observe the weights in chunks.

The weights of a whole prompt are never in memory at once: with Q × N numbers per head, 2048 tokens of the default model
would need 150 MB per layer.

Dimension key: B sequences, H key-value heads, G query heads per key-value head, Q queries (q of them in a chunk),
N slots (n of them for a chunk to read), D head dimension.
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

CHUNK = 2**21  # number of attention weights in memory at a time
CHUNK_ON_GPU = 2**28  # on a GPU, launching many small chunks would take longer than computing them


def attend_(
    query: Float[Tensor, "B heads Q D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
    rolling: Rotation | None = None,
    fresh: tuple[Float[Tensor, "B H Q D"], Float[Tensor, "B H Q D"]] | None = None,
) -> Float[Tensor, "B heads Q D"]:
    """Compute the output of attention; what the policy remembers of the weights is written into the slots.

    Args:
        position: position of each query, counted as in Slots; FREE for padding, whose output is meaningless.
        rolling: first rotate the keys to their places among the slots, which must be RollingSlots.
        fresh: exact keys and values of the new tokens, which are in the last slots, if the stored ones are rounded.
    """
    query = query.unflatten(1, (slots.shape[1], -1))  # (B, H, G, Q, D): neighbouring query heads share a key-value head
    n_queries = query.shape[3]
    if fresh and not (slots.ring and n_queries == 1):  # a ring stores the newest token without rounding
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
        else:  # torch's fused attention; then again with explicit weights for the observed queries
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
    """Decode one token on a GPU: the kernel sums each slot's weights over the group and rotates keys as it loads them.

    The host does not wait for the device, unless a policy requests weights that the kernel does not return.
    """
    rotation_inputs = (slots.gap, rolling.frequencies) if rolling else ()
    needs_mass = bool(policy.n_observed(1))
    heads, query_position = query.flatten(1, 3).contiguous(), position[:, 0].contiguous()
    slot_position = slots.position if slots.has_free else None  # otherwise the newest token attends to all slots
    result = kernel.launch(
        heads, keys, values, query_position, slot_position, scaling, *rotation_inputs, with_mass=needs_mass
    )
    if needs_mass:

        def weights() -> Float[Tensor, "B H G 1 N"]:
            with rolling.turning_(keys, slots) if rolling else nullcontext():
                return next(_rows(query, keys, slots, position, scaling))[1].weights

        observation = ObservedMass(result.mass, query.shape[2], position, slots.n_seen - 1, weights)
        slots.remember_(policy.remember(slots, observation))
    return result.output[:, :, None]


def _is_plain_prompt(query: Float[Tensor, "B H G Q D"], keys: Float[Tensor, "B H N D"], slots: Slots) -> bool:
    """Whether this is a whole prompt without padding on a GPU, for which a kernel can sum the attention weights."""
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
    """Compute fused attention, and with a kernel the attention that each key receives from the last queries.

    The kernel computes the weights as exp(l_ik − lse_i) from the log-sum-exp of each query i.
    """
    kernel, last = kernel_for("cache.attention_mass", query, keys), slice(query.shape[3] - n_observed, None)
    output, lse = _fused_with_sums(kernel, query, keys, values, slots, position, scaling, last)
    heads, query_position = query[:, :, :, last].flatten(1, 2).contiguous(), position[:, last].contiguous()
    mass = kernel.launch(heads, keys, lse, query_position, slots.position, scaling)

    def weights() -> Float[Tensor, "B H G Q N"]:
        logits = _logits(query[:, :, :, last] * scaling, keys)
        _hide_later_(logits, slots, query_position, 0)
        return logits.softmax(dim=-1, dtype=torch.float32).view(*query.shape[:3], n_observed, slots.n)

    observation = ObservedMass(mass, query.shape[2], query_position, slots.n_seen - 1, weights)
    slots.remember_(policy.remember(slots, observation))
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
    """Fused attention of a whole prompt, and log Σ_k exp(l_ik) of its last queries, which flash attention returns."""
    if (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[4] % 8 == 0
        and query.shape[4] <= 256
    ):
        heads = query.flatten(1, 2)
        # torch's grouped attention makes the same copies.
        copies = (vectors.repeat_interleave(query.shape[2], dim=1) for vectors in (keys, values))
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        output, lse, *_ = flash(heads, *copies, 0.0, True, False, scale=scaling)
        return output.view_as(query), lse[:, :, last].contiguous()
    output = _fused(query, keys, values, slots, position, scaling)  # where flash attention cannot run
    heads, query_position = query[:, :, :, last].flatten(1, 2), position[:, last]
    return output, kernel.log_sum_exp(heads, keys, query_position, slots.position, scaling)


def _with_fresh(
    slots: Slots, fresh: tuple[Float[Tensor, "B H Q D"], Float[Tensor, "B H Q D"]]
) -> tuple[Float[Tensor, "B H N D"], Float[Tensor, "B H N D"]]:
    """Return the stored keys and values, with those of the newest tokens replaced by the exact ones."""
    n_before = slots.n - fresh[0].shape[2]
    slot_vectors = slots.keys, slots.values
    return tuple(torch.cat([old[:, :, :n_before], new], dim=2) for old, new in zip(slot_vectors, fresh, strict=True))


def _observed_(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
    policy: EvictionPolicy,
) -> Float[Tensor, "B H G Q D"]:
    """o_i = Σ_j A_ij v_j with explicit weights, in chunks of queries; the policy observes the weights of each chunk."""
    outputs = []
    for readable, observation in _rows(query, keys, slots, position, scaling):
        weights = observation.weights.flatten(0, 1).flatten(1, 2)  # (B·H, G·q, n)
        output = torch.bmm(weights.to(values.dtype), values[:, :, : readable.n].flatten(0, 1))  # (B·H, G·q, D)
        outputs.append(output.view(*observation.weights.shape[:4], -1))  # (B, H, G, q, D)
        slots.remember_(policy.remember(readable, observation))
    return torch.cat(outputs, dim=3) if len(outputs) > 1 else outputs[0]


def _rows(
    query: Float[Tensor, "B H G Q D"],
    keys: Float[Tensor, "B H N D"],
    slots: Slots,
    position: Int[Tensor, "B Q"],
    scaling: float,
) -> Iterator[tuple[Slots, Observed]]:
    """A_ij = exp(l_ij) / Σ_k exp(l_ik) with l = scaling · q kᵀ, for each chunk of queries and the slots it may read."""
    last = slots.n_seen - 1
    is_first_pass = query.shape[3] == slots.n  # slots are in text order: those after a chunk's last query are later
    for start, end in _chunks(query, slots.n):
        readable = slots.first(end if is_first_pass else slots.n)
        chunk, query_position = query[:, :, :, start:end], position[:, start:end]  # (B, H, G, q, D), (B, q)
        logits = _logits(chunk * scaling, keys[:, :, : readable.n])  # (B·H, G·q, n)
        if query.shape[3] > 1 or slots.has_free:  # even a chunk of one query may have later keys
            # In the first pass, slots before the chunk hold earlier tokens, which need no mask, or are FREE.
            _hide_later_(logits, readable, query_position, start if is_first_pass and not slots.has_free else 0)
        weights = logits.softmax(dim=-1, dtype=torch.float32).view(*chunk.shape[:4], readable.n)  # (B, H, G, q, n)
        if slots.has_free:
            weights = weights * (query_position != FREE)[:, None, None, :, None]  # padding contributes no attention
        yield readable, Observed(weights, query_position, last, is_first=start == 0)


def _logits(query: Float[Tensor, "B H G q D"], keys: Float[Tensor, "B H n D"]) -> Float[Tensor, "BH Gq n"]:
    """q kᵀ with the queries of a group as rows of one matrix: a batched product of three axes is fastest."""
    return torch.bmm(query.flatten(0, 1).flatten(1, 2), keys.flatten(0, 1).transpose(1, 2))


def _hide_later_(logits: Float[Tensor, "BH Gq n"], slots: Slots, position: Int[Tensor, "B q"], start: int) -> None:
    """Set logits to −∞ where a slot from `start` on holds a token after the query's."""
    is_hidden = ~visible(slots, position)[..., start:].flatten(0, 1)  # (B·H, q, n − start)
    by_query = logits.unflatten(1, (-1, position.shape[1]))  # (B·H, G, q, n)
    by_query[..., start:].masked_fill_(is_hidden[:, None], float("-inf"))


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
    if n_queries == 1 and not slots.has_free:  # one token: the group takes the place of the query axis
        return scaled_dot_product_attention(query[:, :, :, 0], keys, values, scale=scaling)[:, :, :, None]
    if n_queries == slots.n and not slots.has_free:  # the first pass: slots are in text order
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
    """Return which slots each query may attend to: its own token and earlier ones."""
    return slots.position[:, :, None, :] <= position[:, None, :, None]


def _chunks(query: Float[Tensor, "B H G Q D"], n: int) -> list[tuple[int, int]]:
    """Return start and end of each chunk of queries whose weights over n slots are at most CHUNK numbers."""
    n_queries = query.shape[3]
    size = max(1, (CHUNK_ON_GPU if query.is_cuda else CHUNK) // (query.shape[:3].numel() * n))
    return [(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]
