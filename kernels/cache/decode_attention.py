"""Attention of one new token over a cache that forgets, and how much of it each slot got.

Dimension key: B sequences, H key-value heads, G query heads to each, heads = H * G, N slots, D size of a head, S parts
that the slots are split into.

Each key and value is read once for the whole group, where `repeat_interleave` would copy it G times. What a policy such
as H2O adds up in every step, the weights summed over the group, comes out beside: 4 bytes a slot, and 2 * G for the
weights in between, on top of the 2 * D * 2 bytes of a key and value in bfloat16. Rolling positions, where a key that
RoPE turned at one position is used at another, cost no pass of their own: keys are turned on while they are loaded.

One token is bound by memory, and one program a head would leave most of a GPU idle, so the slots are split: a first
kernel reads the parts, a second joins them by their maxima and sums. In between, weights are relative to the maximum so
far, in float16 where keys are in 16 bits: that is closer than the weights that multiply the values are. Those of the
query heads that share a slot lie side by side, so that a thread writes and reads them at once.

In bfloat16 with D = 128 and G = 4, a slot's weights are 16 bytes, written and read, and their sum 4, on top of 512 of
the key and value. On an H200, keys and values of 32 sequences of 8 heads and 8,192 slots pass in 252 us at the rate of
a copy, which is what torch's fused attention takes, and these 42 MB in 10 us. So 0.95 of its speed would leave 3 us for
all else: to fill the GPU, to empty it, and to start the second kernel, which needs the sums of all parts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from course_lib.kernels.checks import (
    FLOATS,
    FREE,
    INTEGERS,
    check_device,
    check_slots,
    check_tensor,
    is_slots,
    slot_room,
)
from course_lib.kernels.runtime import INTERPRETED, jit, overlap_of, programs_to_fill, runs_kernel, tl, triton
from course_lib.kernels.tiles import level_of_parts, product, read_of_parts
from jaxtyping import Float, Int
from torch import Tensor

MOST_SLOTS, TILE_BYTES = 32, 2**13  # of a program at a time, a tile: so many, or keys of so many bytes
JOINED_SLOTS = 1024  # of a program of the second kernel
MOST_PARTS = 64  # that it joins at a time; 16 where there are no more
MOST_HEADS = 2**16 - 1  # of all sequences: as many programs as a GPU starts in the second direction
MOST_SIZE = 256  # of a head
PROGRAMS_A_PROCESSOR = 4  # of the first kernel; all of them are on the GPU at once, so that none waits for the others
PROGRAMS = 8  # of the first kernel, where no GPU says how many it can hold
WHOLE_TURN = 6.2831854820251465, -1.7484555314695172e-07  # 2 pi: the nearest float32, and what that is off by
# For the tests: ragged tiles, FREE slots, padding and keys to be turned; whole tiles; a single slot; keys in place; all
# slots seen. Few sizes, since each is compiled.
CASES = (
    {"shape": (2, 1, 3, 197, 24), "gaps": True, "turned": True},
    {"shape": (1, 2, 1, 128, 64)},
    {"shape": (1, 1, 3, 1, 24), "turned": True},
    {"shape": (1, 3, 4, 70, 64), "gaps": True},
    {"shape": (2, 1, 4, 150, 64), "every": True},
)


class Read(NamedTuple):
    """What the token read, and the weight it gave each slot, summed over the query heads of the group."""

    output: Float[Tensor, "B heads D"]
    mass: Float[Tensor, "B H N"] | None


def reference(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"] | None,
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
    with_mass: bool = True,
) -> Read:
    """In float32. Neighbouring query heads are rows of one product with the keys that they share."""
    rows, keys = query.float().unflatten(1, (keys.shape[1], -1)), keys.float()  # (B, H, G, D)
    if turns is not None:
        angle = turns[..., None].float() * frequencies
        cos, sin = angle.cos(), angle.sin()
        low, high = keys.chunk(2, dim=-1)
        keys = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
    if slot_position is None:
        seen = torch.ones(keys.shape[:3], dtype=torch.bool, device=keys.device)
    else:
        at = position[:, None, None]
        seen = (slot_position <= at) & (at != FREE)
    logits = (rows * scaling @ keys.transpose(2, 3)).masked_fill(~seen[:, :, None], float("-inf"))
    weights = logits.softmax(dim=-1).masked_fill(~seen[:, :, None], 0)  # of a token that sees nothing, not NaN
    output = weights @ values.float().masked_fill(~seen[..., None], 0)
    return Read(output.flatten(1, 2).to(query.dtype), weights.sum(dim=2) if with_mass else None)


def bytes_moved(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"] | None,
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
    with_mass: bool = True,
) -> int:
    """Everything read once; the output, as large as the query, and a float32 for each slot written once."""
    read = (query, keys, values, None if slot_position is None else position, slot_position, turns, frequencies)
    mass = 4 * keys.shape[:3].numel() if with_mass else 0
    return sum(tensor.nbytes for tensor in read if tensor is not None) + query.nbytes + mass


@jit
def turned(
    low, high, by, frequency, EXACT: tl.constexpr, HIGH: tl.constexpr = WHOLE_TURN[0], LOW: tl.constexpr = WHOLE_TURN[1]
):  # fmt: skip
    """Keys in columns, their first and second halves, turned on by so many positions each.

    A GPU's own sine is 2^-20 off near zero, worse far from it, and an instruction, where an exact one is dozens. So the
    whole turns are taken off first (Cody, Waite), with 2 pi in two parts: what is left is within 2^-22 of the angle.
    """
    angle = frequency[:, None] * by[None, :]
    if EXACT:  # the interpreter has numpy's sine alone
        cos, sin = tl.cos(angle), tl.sin(angle)
    else:
        n_turns = (angle * 0.15915494309189535 + 12582912.0) - 12582912.0  # 1.5 * 2^23 has no room for fractions
        angle = tl.fma(n_turns, -LOW, tl.fma(n_turns, -HIGH, angle))
        cos, sin = tl.extra.cuda.libdevice.fast_cosf(angle), tl.extra.cuda.libdevice.fast_sinf(angle)
    a, b = low.to(tl.float32), high.to(tl.float32)
    return (a * cos - b * sin).to(low.dtype), (b * cos + a * sin).to(low.dtype)


@jit(lengths=("N", "H", "PART", "S", "KEY_ROOM", "VALUE_ROOM", "POSITION_ROOM", "TURN_ROOM"))
def part_kernel(
    query, keys, values, position, slot_position, turns, frequencies, weights, levels, part, peak, total, scaling,
    N, H, PART, S, KEY_ROOM, VALUE_ROOM, POSITION_ROOM, TURN_ROOM, FREE: tl.constexpr, UPCAST: tl.constexpr,
    OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One part of one head's slots: their weights, and what the group reads of them before it is normalised.

    Which keys are loaded depends on positions that are loaded themselves; those are read one tile ahead, so that the
    compiler can start the copies of a tile while it works on the one before.
    """
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + key-value head
    start = tl.program_id(0) * PART
    stop = tl.minimum(start + PART, N)
    g, d, half = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_H)
    pair = half < D // 2
    if slot_position is not None:
        at = tl.load(position + head // H)
        at = tl.where(at == FREE, -1, at)  # padding sees nothing
        n = start + tl.arange(0, TILE)
        ahead = tl.load(slot_position + head * POSITION_ROOM + n, mask=n < stop, other=FREE)
    if turns is not None:
        frequency = tl.load(frequencies + half, mask=pair, other=0.0)
    row = (head * G + g)[:, None]
    inside = (g < G)[:, None] & pair[None, :]
    q_low = tl.load(query + row * D + half[None, :], mask=inside, other=0.0)
    q_high = tl.load(query + row * D + D // 2 + half[None, :], mask=inside, other=0.0)
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
    read = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for first in range(start, stop, TILE):
        n = first + tl.arange(0, TILE)
        if slot_position is None:
            seen = n < stop
        else:
            seen = ahead <= at
            later = n + TILE
            ahead = tl.load(slot_position + head * POSITION_ROOM + later, mask=later < stop, other=FREE)
        key_at = keys + (head * KEY_ROOM + n)[None, :] * D + half[:, None]
        wanted = seen[None, :] & pair[:, None]
        low = tl.load(key_at, mask=wanted, other=0.0)
        high = tl.load(key_at + D // 2, mask=wanted, other=0.0)
        if turns is not None:
            by = tl.load(turns + head * TURN_ROOM + n, mask=seen, other=0).to(tl.float32)
            if tl.max(tl.abs(by), 0) > 0:  # in a window, most tiles have nothing to turn
                low, high = turned(low, high, by, frequency, UPCAST)
        logit = (product(q_low, low, UPCAST) + product(q_high, high, UPCAST)) * scaling
        logit = tl.where(seen[None, :], logit, float("-inf"))
        higher = tl.maximum(best, tl.max(logit, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet: not -inf less -inf
        weight = tl.exp(logit - level[:, None])
        fade = tl.exp(best - level)
        if weights is not None:
            at_slot = weights + (head * N + n)[None, :] * G + g[:, None]  # heads of a slot in a row: one wide store
            tl.store(at_slot, weight.to(weights.dtype.element_ty), mask=(g < G)[:, None] & (n < stop)[None, :])
            tl.store(levels + (head * tl.cdiv(N, TILE) + first // TILE) * G + g, level, mask=g < G)
        v_at = values + (head * VALUE_ROOM + n)[:, None] * D + d[None, :]
        v = tl.load(v_at, mask=seen[:, None] & (d < D)[None, :], other=0.0)
        sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
        read = read * fade[:, None] + product(weight.to(v.dtype), v, UPCAST)
        best = higher
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    row = (head * G + g) * S + tl.program_id(0)
    tl.store(peak + row, best, mask=g < G)
    tl.store(total + row, sum_of_weights, mask=g < G)
    tl.store(part + row[:, None] * D + d[None, :], read, mask=(g < G)[:, None] & (d < D)[None, :])


@jit(lengths=("N", "S"))
def join_kernel(
    weights, levels, part, peak, total, output, mass, N, S, OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The first G programs of a head join the parts of a query head each, the others normalise weights and sum them."""
    head = tl.program_id(1).to(tl.int64)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    if tl.program_id(0) < G:
        read_of_parts(part, peak, total, output, head * G + tl.program_id(0), S, D, BLOCK_D, BLOCK_S)
    elif mass is not None:
        g = tl.arange(0, BLOCK_G)
        tile = (tl.program_id(0) - G) * TILES + tl.arange(0, TILES)
        n = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        inside = (n < N)[:, :, None] & (g < G)[None, None, :]
        weight = tl.load(weights + (head * N + n)[:, :, None] * G + g[None, None, :], mask=inside, other=0.0)
        n_tiles = tl.cdiv(N, TILE)
        at = levels + (head * n_tiles + tile)[:, None] * G + g[None, :]
        then = tl.load(at, mask=(tile < n_tiles)[:, None] & (g < G)[None, :], other=float("-inf"))
        level, sum_of_weights = level_of_parts(peak, total, head * G + g, g < G, S, BLOCK_S)
        share = 1 / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)  # a token that sees nothing has weights of 0
        share = share[None, :] * tl.exp(tl.minimum(then - level[None, :], 0.0))  # above 0 where nothing was seen
        received = tl.sum(weight.to(tl.float32) * share[:, None, :], 2)
        tl.store(mass + head * N + n, received, mask=n < N)


def takes(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether the kernel reads slots that lie in memory like this, for queries (B, H, G, 1, D)."""
    heads, size = keys.shape[:2].numel(), keys.shape[3]
    alike = query.dtype == keys.dtype == values.dtype and is_slots(keys) and is_slots(values)
    return alike and heads <= MOST_HEADS and size % 2 == 0 and size <= MOST_SIZE


def launch(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B"],
    slot_position: Int[Tensor, "B H N"] | None,
    scaling: float,
    turns: Int[Tensor, "B H N"] | None = None,
    frequencies: Float[Tensor, "half"] | None = None,
    with_mass: bool = True,
) -> Read:
    """What one token of each sequence reads, and the attention of each slot.

    Args:
        position: of the tokens; FREE for padding, which reads zeros.
        slot_position: of the keys, in any order. Later positions are not seen, so FREE slots are not even loaded. None
            where each token sees every slot.
        turns: positions by which each key is turned on, and `frequencies`, the angle of one position for each pair of
            dimensions (i, i + D/2); both or neither.
        with_mass: whether the attention of each slot is wanted; without, it is None.
    """
    _check(query, keys, values, position, slot_position, turns, frequencies)
    if not runs_kernel(query):
        return reference(query, keys, values, position, slot_position, scaling, turns, frequencies, with_mass)
    (n_sequences, n_heads, n_slots, size), n_groups = keys.shape, query.shape[1] // keys.shape[1]
    n_heads_in_all, tile, overlap = n_sequences * n_heads, _most_slots(keys), overlap_of(query.device)
    n_tiles = triton.cdiv(n_slots, tile)
    per_part = _tiles_per_part(n_heads_in_all, n_tiles, query.device)
    n_parts = max(1, triton.cdiv(n_tiles, per_part))
    output, weights, levels, mass = torch.empty(query.shape, dtype=query.dtype, device=query.device), None, None, None
    if with_mass:
        kind = torch.float32 if query.itemsize == 4 else torch.float16
        weights = _scratch(query, (n_heads_in_all, n_slots, n_groups), kind)
        levels = _scratch(query, (n_heads_in_all, n_tiles, n_groups))
        mass = _scratch(query, keys.shape[:3])
    part = _scratch(query, (*query.shape[:2], n_parts, size))
    peak, total = (_scratch(query, part.shape[:3]) for _ in range(2))
    sizes = {"N": n_slots, "S": n_parts, "G": n_groups, "D": size, "BLOCK_D": max(16, triton.next_power_of_2(size))}
    sizes |= {"TILE": tile, "OVERLAP": bool(overlap), "num_warps": 4}
    n_joining = n_groups + (triton.cdiv(n_slots, JOINED_SLOTS) if with_mass else 0)
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        part_kernel[n_parts, n_heads_in_all](
            query, keys, values, position, slot_position, turns, frequencies, weights, levels, part, peak, total,
            scaling, PART=per_part * tile, KEY_ROOM=slot_room(keys), VALUE_ROOM=slot_room(values),
            POSITION_ROOM=_room(slot_position), TURN_ROOM=_room(turns), FREE=FREE, UPCAST=INTERPRETED, H=n_heads,
            BLOCK_G=max(16, triton.next_power_of_2(n_groups)), BLOCK_H=max(16, triton.next_power_of_2(size // 2)),
            num_stages=3, **sizes,
        )  # fmt: skip
        join_kernel[n_joining, n_heads_in_all](
            weights, levels, part, peak, total, output, mass, BLOCK_G=triton.next_power_of_2(n_groups),
            BLOCK_S=16 if n_parts <= 16 else MOST_PARTS, TILES=JOINED_SLOTS // tile, **sizes, **overlap,
        )  # fmt: skip
    return Read(output, mass)


def _room(column: Tensor | None) -> int:
    return 0 if column is None else slot_room(column)


def _scratch(query: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=query.device)


def _most_slots(keys: Tensor) -> int:
    """Fewer slots where keys are large: a tile has to fit into the shared memory of small GPUs."""
    return max(16, min(MOST_SLOTS, TILE_BYTES // (triton.next_power_of_2(keys.shape[3]) * keys.element_size())))


def _tiles_per_part(n_heads: int, n_tiles: int, device: torch.device) -> int:
    """So few that the parts of all heads keep a GPU busy."""
    n_programs = programs_to_fill(device, PROGRAMS_A_PROCESSOR, PROGRAMS)
    return max(1, triton.cdiv(n_tiles, max(1, n_programs // max(1, n_heads))))


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int, int],
    gaps: bool = False,
    turned: bool = False,
    every: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float, Tensor | None, Tensor | None]:
    """Random arguments for `launch`, of a shape (B, H, G, N, D): the last token of a text, half of which is kept, in
    any order. With gaps, some slots are FREE and the last sequence is padding. Turned: keys go to their places. Every
    slot is seen without asking for its position.
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
    at = None if every else kept.to(device)
    return query, keys, values, position.to(device), at, size**-0.5, *extra


def _check(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    slot_position: Tensor | None,
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
    tensors = {"query": query, "keys": keys, "values": values, "position": position}
    if slot_position is not None:
        check_slots("slot_position", slot_position, (n_sequences, n_heads, n_slots), INTEGERS)
        tensors["slot_position"] = slot_position
    if (turns is None) != (frequencies is None):
        raise ValueError("got turns without frequencies or the reverse: expected both or neither; pass both")
    if turns is not None:
        check_slots("turns", turns, (n_sequences, n_heads, n_slots), INTEGERS)
        check_tensor("frequencies", frequencies, (size // 2,), (torch.float32,))
        tensors |= {"turns": turns, "frequencies": frequencies}
    check_device(**tensors)
