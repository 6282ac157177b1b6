"""Attention of one new token over a cache that forgets, and how much of it each slot got.

Dimension key: B sequences, H key-value heads, G query heads to each, heads = H * G, N slots, D size of a head, S parts
that the slots are split into.

Each key and value is read once for the whole group, where `repeat_interleave` would copy it G times. What a policy such
as H2O adds up in every step, the weights summed over the group, comes out beside: 4 bytes a slot, and 4 * G for the
logits in between, on top of the 2 * D * 2 bytes of a key and value in bfloat16. Rolling positions, where a key that
RoPE turned at one position is used at another, cost no pass of their own: keys are turned on while they are loaded.

One token is bound by memory, and one program a head would leave most of a GPU idle, so the slots are split: a first
kernel reads the parts, a second joins them by their maxima and sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_kernels.checks import FLOATS, INTEGERS, check_device, check_slots, check_tensor, slot_room
from course_kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton, tuned
from course_kernels.tiles import product
from course_lib.kv.slots import FREE

TILE, TILE_BYTES = 64, 2**14  # slots that a program has in registers at a time: so many, or keys of so many bytes
PROGRAMS = 8  # of the first kernel, where no GPU says how many it can hold
# For the tests: ragged tiles, FREE slots, padding and keys to be turned; whole tiles; a single slot; keys in place.
CASES = (
    {"shape": (2, 1, 3, 197, 24), "gaps": True, "turned": True},
    {"shape": (1, 2, 1, 128, 64)},
    {"shape": (1, 1, 1, 1, 8), "turned": True},
    {"shape": (1, 3, 4, 70, 64), "gaps": True},
)


class Read(NamedTuple):
    """What the token read, and the weight it gave each slot, summed over the query heads of the group."""

    output: Float[Tensor, "B heads D"]
    mass: Float[Tensor, "B H N"]


def reference(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
) -> Read:
    """In float32. Neighbouring query heads are rows of one product with the keys that they share."""
    rows, keys = query.float().unflatten(1, (keys.shape[1], -1)), keys.float()  # (B, H, G, D)
    if turns is not None:
        angle = turns[..., None].float() * frequencies
        cos, sin = angle.cos(), angle.sin()
        low, high = keys.chunk(2, dim=-1)
        keys = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
    at = position[:, None, None]
    seen = (slot_position <= at) & (at != FREE)
    logits = (rows * scaling @ keys.transpose(2, 3)).masked_fill(~seen[:, :, None], float("-inf"))
    weights = logits.softmax(dim=-1).masked_fill(~seen[:, :, None], 0)  # of a token that sees nothing, not NaN
    output = weights @ values.float().masked_fill(~seen[..., None], 0)
    return Read(output.flatten(1, 2).to(query.dtype), weights.sum(dim=2))


def bytes_moved(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
) -> int:
    """Everything read once; the output, as large as the query, and a float32 for each slot written once."""
    read = (query, keys, values, position, slot_position, turns, frequencies)
    return sum(tensor.nbytes for tensor in read if tensor is not None) + query.nbytes + 4 * slot_position.numel()


@jit
def turned(low, high, by, frequency):
    """Keys in columns, their first and second halves, turned on by so many positions each."""
    angle = frequency[:, None] * by[None, :]
    cos, sin = tl.cos(angle), tl.sin(angle)
    a, b = low.to(tl.float32), high.to(tl.float32)
    return (a * cos - b * sin).to(low.dtype), (b * cos + a * sin).to(low.dtype)


@tuned(
    ["N_CLASS", "G", "D"],
    {"num_warps": 4, "num_stages": 2},
    {"num_warps": 4, "num_stages": 3},
)
@jit(lengths=("N", "N_CLASS", "PART", "S", "KEY_ROOM", "VALUE_ROOM", "POSITION_ROOM", "TURN_ROOM"))
def part_kernel(
    query, keys, values, position, slot_position, turns, frequencies, logits, part, peak, total, scaling,
    N, N_CLASS, PART, S, KEY_ROOM, VALUE_ROOM, POSITION_ROOM, TURN_ROOM, FREE: tl.constexpr, UPCAST: tl.constexpr,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One part of one head's slots: their logits, and what the group reads of them before it is normalised."""
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + key-value head
    start = tl.program_id(0) * PART
    g, d, half = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_H)
    pair = half < D // 2
    at = tl.load(position + head // H)
    at = tl.where(at == FREE, -1, at)  # padding sees nothing
    row = (head * G + g)[:, None]
    inside = (g < G)[:, None] & pair[None, :]
    q_low = tl.load(query + row * D + half[None, :], mask=inside, other=0.0)
    q_high = tl.load(query + row * D + D // 2 + half[None, :], mask=inside, other=0.0)
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
    read = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for first in range(start, tl.minimum(start + PART, N), TILE):
        n = first + tl.arange(0, TILE)
        seen = tl.load(slot_position + head * POSITION_ROOM + n, mask=n < N, other=FREE) <= at
        key_at = keys + (head * KEY_ROOM + n)[None, :] * D + half[:, None]
        wanted = seen[None, :] & pair[:, None]
        low = tl.load(key_at, mask=wanted, other=0.0)
        high = tl.load(key_at + D // 2, mask=wanted, other=0.0)
        if turns is not None:
            by = tl.load(turns + head * TURN_ROOM + n, mask=seen, other=0).to(tl.float32)
            if tl.max(tl.abs(by), 0) > 0:  # in a window, most tiles have nothing to turn
                low, high = turned(low, high, by, tl.load(frequencies + half, mask=pair, other=0.0))
        logit = (product(q_low, low, UPCAST) + product(q_high, high, UPCAST)) * scaling
        logit = tl.where(seen[None, :], logit, float("-inf"))
        tl.store(logits + row * N + n[None, :], logit, mask=(g < G)[:, None] & (n < N)[None, :])
        higher = tl.maximum(best, tl.max(logit, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet: not -inf less -inf
        weight = tl.exp(logit - level[:, None])
        fade = tl.exp(best - level)
        v_at = values + (head * VALUE_ROOM + n)[:, None] * D + d[None, :]
        v = tl.load(v_at, mask=seen[:, None] & (d < D)[None, :], other=0.0)
        sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
        read = read * fade[:, None] + product(weight.to(v.dtype), v, UPCAST)
        best = higher
    row = (head * S + tl.program_id(0)) * G + g
    tl.store(peak + row, best, mask=g < G)
    tl.store(total + row, sum_of_weights, mask=g < G)
    tl.store(part + row[:, None] * D + d[None, :], read, mask=(g < G)[:, None] & (d < D)[None, :])


@jit(lengths=("N", "S"))
def join_kernel(
    logits, part, peak, total, output, mass, N, S, G: tl.constexpr, D: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Weights from logits for one tile of slots; the first program of a head also adds up its parts."""
    head = tl.program_id(1).to(tl.int64)
    g, d = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D)
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    for s in range(S):
        best = tl.maximum(best, tl.load(peak + (head * S + s) * G + g, mask=g < G, other=float("-inf")))
    level = tl.where(best == float("-inf"), 0.0, best)
    sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
    read = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for s in range(S):
        row = (head * S + s) * G + g
        fade = tl.exp(tl.load(peak + row, mask=g < G, other=float("-inf")) - level)
        sum_of_weights += fade * tl.load(total + row, mask=g < G, other=0.0)
        if tl.program_id(0) == 0:
            inside = (g < G)[:, None] & (d < D)[None, :]
            read += fade[:, None] * tl.load(part + row[:, None] * D + d[None, :], mask=inside, other=0.0)
    share = 1 / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)  # a token that sees nothing has weights of 0
    row = (head * G + g)[:, None]
    if tl.program_id(0) == 0:
        inside = (g < G)[:, None] & (d < D)[None, :]
        tl.store(output + row * D + d[None, :], (read * share[:, None]).to(output.dtype.element_ty), mask=inside)
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    logit = tl.load(logits + row * N + n[None, :], mask=(g < G)[:, None] & (n < N)[None, :], other=float("-inf"))
    weight = tl.exp(logit - level[:, None]) * share[:, None]
    tl.store(mass + head * N + n, tl.sum(weight, 0), mask=n < N)


def launch(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
) -> Read:
    """What one token of each sequence reads, and the attention of each slot.

    Args:
        position: of the tokens; FREE for padding, which reads zeros.
        slot_position: of the keys, in any order. Later positions are not seen, so FREE slots are not even loaded.
        turns: positions by which each key is turned on, and `frequencies`, the angle of one position for each pair of
            dimensions (i, i + D/2); both or neither.
    """
    _check(query, keys, values, position, slot_position, turns, frequencies)
    if not runs_kernel(query):
        return reference(query, keys, values, position, slot_position, scaling, turns, frequencies)
    (n_sequences, n_heads, n_slots, size), n_groups = keys.shape, query.shape[1] // keys.shape[1]
    tile = _tile(keys)
    per_part = tile * _tiles_per_part(n_sequences * n_heads, triton.cdiv(n_slots, tile), query.device)
    n_parts = max(1, triton.cdiv(n_slots, per_part))
    read = Read(torch.empty(query.shape, dtype=query.dtype, device=query.device), _scratch(query, keys.shape[:3]))
    logits = _scratch(query, (*query.shape[:2], n_slots))
    part = _scratch(query, (n_sequences, n_heads, n_parts, n_groups, size))
    peak, total = (_scratch(query, part.shape[:4]) for _ in range(2))
    block = {"G": n_groups, "D": size, "BLOCK_D": max(16, triton.next_power_of_2(size)), "TILE": tile}
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        part_kernel[n_parts, n_sequences * n_heads](
            query, keys, values, position, slot_position, turns, frequencies, logits, part, peak, total, scaling,
            N=n_slots, N_CLASS=triton.next_power_of_2(n_slots), PART=per_part, S=n_parts, KEY_ROOM=slot_room(keys),
            VALUE_ROOM=slot_room(values), POSITION_ROOM=slot_room(slot_position),
            TURN_ROOM=0 if turns is None else slot_room(turns), FREE=FREE, UPCAST=INTERPRETED, H=n_heads,
            BLOCK_G=max(16, triton.next_power_of_2(n_groups)), BLOCK_H=max(16, triton.next_power_of_2(size // 2)),
            **block,
        )  # fmt: skip
        join_kernel[max(1, triton.cdiv(n_slots, tile)), n_sequences * n_heads](
            logits, part, peak, total, *read, N=n_slots, S=n_parts, BLOCK_G=triton.next_power_of_2(n_groups), **block
        )
    return read


def _scratch(query: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=query.device)


def _tile(keys: Tensor) -> int:
    """Fewer slots where keys are large: a tile has to fit into the shared memory of small GPUs."""
    return max(16, min(TILE, TILE_BYTES // (triton.next_power_of_2(keys.shape[3]) * keys.element_size())))


def _tiles_per_part(n_heads: int, n_tiles: int, device: torch.device) -> int:
    """So few that the parts of all heads keep a GPU busy."""
    n_programs = PROGRAMS
    if device.type == "cuda":
        n_programs = 4 * torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, triton.cdiv(n_tiles, max(1, n_programs // n_heads)))


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int, int],
    gaps: bool = False,
    turned: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float, Tensor | None, Tensor | None]:
    """Random arguments for `launch`, of a shape (B, H, G, N, D): the last token of a text, half of which is kept, in
    any order. With gaps, some slots are FREE and the last sequence is padding. Turned: keys go to their places.
    """
    where = {"generator": generator, "device": generator.device}
    n_sequences, n_heads, n_groups, n_slots, size = shape
    query = torch.randn(n_sequences, n_heads * n_groups, size, **where).to(device, dtype)
    keys, values = (torch.randn(*shape[:2], n_slots, size, **where).to(device, dtype) for _ in range(2))
    order = torch.rand(*shape[:2], 2 * n_slots, **where).argsort(dim=2)
    kept = order[:, :, :n_slots].int().contiguous()
    turns, frequencies = kept.argsort(dim=2).argsort(dim=2).int() - kept, 100.0 ** -torch.linspace(0, 1, size // 2)
    position = torch.full((n_sequences,), 2 * n_slots)
    if gaps:
        kept[torch.rand(kept.shape, **where) < 0.3] = FREE
        position[-1] = FREE
    extra = (turns.to(device), frequencies.to(device)) if turned else (None, None)
    return query, keys, values, position.to(device), kept.to(device), size**-0.5, *extra


def _check(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    slot_position: Tensor,
    turns: Tensor | None,
    frequencies: Tensor | None,
) -> None:
    if query.ndim != 3 or keys.ndim != 4 or not keys.shape[1] or query.shape[1] % keys.shape[1] or keys.shape[3] % 2:
        raise ValueError(
            f"query has shape {tuple(query.shape)} and keys {tuple(keys.shape)}: expected (sequences, heads, size) and "
            "(sequences, key-value heads, slots, size), a multiple of heads and an even size; take one token of each"
        )
    n_sequences, n_heads, n_slots, size = keys.shape
    check_tensor("query", query, (n_sequences, query.shape[1], size), FLOATS)
    check_slots("keys", keys, (n_sequences, n_heads, n_slots, size), (query.dtype,))
    check_slots("values", values, (n_sequences, n_heads, n_slots, size), (query.dtype,))
    check_tensor("position", position, (n_sequences,), INTEGERS)
    check_slots("slot_position", slot_position, (n_sequences, n_heads, n_slots), INTEGERS)
    tensors = {"query": query, "keys": keys, "values": values, "position": position, "slot_position": slot_position}
    if (turns is None) != (frequencies is None):
        raise ValueError("got turns without frequencies or the reverse: expected both or neither; pass both")
    if turns is not None:
        check_slots("turns", turns, (n_sequences, n_heads, n_slots), INTEGERS)
        check_tensor("frequencies", frequencies, (size // 2,), (torch.float32,))
        tensors |= {"turns": turns, "frequencies": frequencies}
    check_device(**tensors)
