"""Decoding attention over a cache with eviction: the output of one new token, and the attention on each slot.

Each key and value is read once for the whole group of query heads, where `repeat_interleave` would copy it G times. The
second output, attention weights summed over the group, is what policies such as H2O accumulate in every step. It costs
4 bytes per slot, plus 2 * G for the weights between the two kernels, in addition to 2 * D * 2 bytes for a key and value
in bfloat16. Rolling positions (a key that RoPE rotated to one position is used at another) need no pass of their own:
keys are rotated further while they are loaded.

Decoding is memory-bound, and one program per head would leave most of a GPU idle. So the slots are split into S parts
(Flash-Decoding; Dao and others, 2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html): a first kernel reads
the parts, and a second one joins them by their maxima and sums. In between, weights are stored relative to the maximum
so far, in float16 where keys have 16 bits: this is at least as precise as the rounded weights that multiply the values.
The weights of the G query heads that share a slot are adjacent in memory, so a thread moves them in one access.

For example, in bfloat16 with D = 128 and G = 4, a slot has 512 bytes of key and value, 16 bytes of weights (written and
read) and 4 bytes of their sum. With 32 sequences of 8 heads and 8,192 slots, an H200 reads the keys and values in
252 us at the rate of a copy, which is also the time of torch's fused attention, and moves the other 42 MB in 10 us. To
reach 0.95 of its speed, 3 us remain for filling and emptying the GPU and for starting the second kernel, which needs
the sums of all parts.

Dimension key: B sequences, H key-value heads, G query heads per key-value head, heads = H * G, N slots, D size of a
head, S parts that the slots are split into.
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

MOST_SLOTS, TILE_BYTES = 32, 2**13  # of a tile: at most so many slots, and so many bytes of keys
JOINED_SLOTS = 1024  # per program of the second kernel
MOST_PARTS = 64  # that it joins per step; 16 where there are no more
MOST_HEADS = 2**16 - 1  # of all sequences: CUDA's limit for the second dimension of a grid
MOST_SIZE = 256  # of a head
PROGRAMS_A_PROCESSOR = 4  # of the first kernel: few enough that all of them run at the same time
PROGRAMS = 8  # of the first kernel, where there is no GPU
WHOLE_TURN = 6.2831854820251465, -1.7484555314695172e-07  # 2 pi: the nearest float32, and its error
# For the tests: partial tiles, FREE slots, padding and keys to rotate; whole tiles; a single slot; no rotation; all
# slots visible. There are few sizes, since each one is compiled.
CASES = (
    {"shape": (2, 1, 3, 197, 24), "gaps": True, "turned": True},
    {"shape": (1, 2, 1, 128, 64)},
    {"shape": (1, 1, 3, 1, 24), "turned": True},
    {"shape": (1, 3, 4, 70, 64), "gaps": True},
    {"shape": (2, 1, 4, 150, 64), "every": True},
)


class Read(NamedTuple):
    """The attention output, and the attention weights of each slot summed over the query heads of its group."""

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
    """Compute the same in float32. The G query heads of a group are rows of one product with their keys."""
    rows, keys = query.float().unflatten(1, (keys.shape[1], -1)), keys.float()  # (B, H, G, D)
    if turns is not None:
        angle = turns[..., None].float() * frequencies
        cos, sin = angle.cos(), angle.sin()
        low, high = keys.chunk(2, dim=-1)  # RoPE rotates the pairs (i, i + D/2)
        keys = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
    if slot_position is None:
        visible = torch.ones(keys.shape[:3], dtype=torch.bool, device=keys.device)
    else:
        query_position = position[:, None, None]
        visible = (slot_position <= query_position) & (query_position != FREE)
    logits = (rows * scaling @ keys.transpose(2, 3)).masked_fill(~visible[:, :, None], float("-inf"))
    weights = logits.softmax(dim=-1).masked_fill(~visible[:, :, None], 0)  # 0, not NaN, where no slot is visible
    output = weights @ values.float().masked_fill(~visible[..., None], 0)
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
    """Count the bytes to move at least: inputs are read once; the output and a float32 per slot are written once."""
    inputs = (query, keys, values, None if slot_position is None else position, slot_position, turns, frequencies)
    mass = 4 * keys.shape[:3].numel() if with_mass else 0
    return sum(tensor.nbytes for tensor in inputs if tensor is not None) + query.nbytes + mass


@jit
def turned(
    low, high, by, frequency, EXACT: tl.constexpr, HIGH: tl.constexpr = WHOLE_TURN[0], LOW: tl.constexpr = WHOLE_TURN[1]
):  # fmt: skip
    """Rotate keys by `by` positions each: `low` and `high` are the two halves of the head, with a key per column.

    The GPU's fast sine is one instruction, where an exact sine takes dozens. Its error is 2^-20 near zero and grows
    with the angle. So we first subtract whole turns, with 2 pi in two parts (Cody and Waite, Software Manual for the
    Elementary Functions, 1980). The reduced angle is then exact to 2^-22.
    """
    angle = frequency[:, None] * by[None, :]
    if EXACT:  # the interpreter has only numpy's sine
        cos, sin = tl.cos(angle), tl.sin(angle)
    else:
        n_turns = (angle * 0.15915494309189535 + 12582912.0) - 12582912.0  # adding 1.5 * 2^23 rounds to an integer
        angle = tl.fma(n_turns, -LOW, tl.fma(n_turns, -HIGH, angle))
        cos, sin = tl.extra.cuda.libdevice.fast_cosf(angle), tl.extra.cuda.libdevice.fast_sinf(angle)
    a, b = low.to(tl.float32), high.to(tl.float32)
    return (a * cos - b * sin).to(low.dtype), (b * cos + a * sin).to(low.dtype)  # (a + ib) exp(i angle)


@jit(lengths=("N", "H", "PART", "S", "KEY_ROOM", "VALUE_ROOM", "POSITION_ROOM", "TURN_ROOM"))
def part_kernel(
    query, keys, values, position, slot_position, turns, frequencies, weights, levels, part, peak, total, scaling,
    N, H, PART, S, KEY_ROOM, VALUE_ROOM, POSITION_ROOM, TURN_ROOM, FREE: tl.constexpr, UPCAST: tl.constexpr,
    OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Compute one part of one head's slots: unnormalised weights, and the weighted sum of values for each query head.

    The positions of the slots decide which keys are loaded. They are read one tile ahead, so that the compiler can
    prefetch the keys of the next tile.
    """
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + key-value head
    start = tl.program_id(0) * PART
    stop = tl.minimum(start + PART, N)
    g, d, half = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_H)
    pair = half < D // 2
    if slot_position is not None:
        query_position = tl.load(position + head // H)
        query_position = tl.where(query_position == FREE, -1, query_position)  # padding sees no slot
        n = start + tl.arange(0, TILE)
        next_position = tl.load(slot_position + head * POSITION_ROOM + n, mask=n < stop, other=FREE)
    if turns is not None:
        frequency = tl.load(frequencies + half, mask=pair, other=0.0)
    # Queries and keys are loaded as two halves, which RoPE combines; q · k is the sum of both products.
    row = (head * G + g)[:, None]
    is_query = (g < G)[:, None] & pair[None, :]
    q_low = tl.load(query + row * D + half[None, :], mask=is_query, other=0.0)
    q_high = tl.load(query + row * D + D // 2 + half[None, :], mask=is_query, other=0.0)
    # Invariant, over the slots so far with logits s_n and values v_n: best = max s_n, sum_of_weights =
    # Σ exp(s_n − best), weighted_sum = Σ exp(s_n − best) v_n.
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
    weighted_sum = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for first in range(start, stop, TILE):
        n = first + tl.arange(0, TILE)
        if slot_position is None:
            visible = n < stop
        else:
            visible = next_position <= query_position  # FREE is larger than any position
            next_n = n + TILE
            next_position = tl.load(slot_position + head * POSITION_ROOM + next_n, mask=next_n < stop, other=FREE)
        key_pointers = keys + (head * KEY_ROOM + n)[None, :] * D + half[:, None]  # (BLOCK_H, TILE)
        is_key = visible[None, :] & pair[:, None]
        low = tl.load(key_pointers, mask=is_key, other=0.0)
        high = tl.load(key_pointers + D // 2, mask=is_key, other=0.0)
        if turns is not None:
            n_positions = tl.load(turns + head * TURN_ROOM + n, mask=visible, other=0).to(tl.float32)
            if tl.max(tl.abs(n_positions), 0) > 0:  # in a sliding window most tiles need no rotation
                low, high = turned(low, high, n_positions, frequency, UPCAST)
        logit = (product(q_low, low, UPCAST) + product(q_high, high, UPCAST)) * scaling
        logit = tl.where(visible[None, :], logit, float("-inf"))  # (BLOCK_G, TILE)
        higher = tl.maximum(best, tl.max(logit, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # while no slot is visible: avoids -inf - (-inf)
        weight = tl.exp(logit - level[:, None])
        fade = tl.exp(best - level)
        if weights is not None:
            pointers = weights + (head * N + n)[None, :] * G + g[:, None]  # (N, G) per head: one wide store per slot
            tl.store(pointers, weight.to(weights.dtype.element_ty), mask=(g < G)[:, None] & (n < stop)[None, :])
            tl.store(levels + (head * tl.cdiv(N, TILE) + first // TILE) * G + g, level, mask=g < G)
        value_pointers = values + (head * VALUE_ROOM + n)[:, None] * D + d[None, :]
        v = tl.load(value_pointers, mask=visible[:, None] & (d < D)[None, :], other=0.0)
        sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
        weighted_sum = weighted_sum * fade[:, None] + product(weight.to(v.dtype), v, UPCAST)
        best = higher
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    row = (head * G + g) * S + tl.program_id(0)
    tl.store(peak + row, best, mask=g < G)
    tl.store(total + row, sum_of_weights, mask=g < G)
    tl.store(part + row[:, None] * D + d[None, :], weighted_sum, mask=(g < G)[:, None] & (d < D)[None, :])


@jit(lengths=("N", "S"))
def join_kernel(
    weights, levels, part, peak, total, output, mass, N, S, OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Join the S parts of a head. Programs 0 to G − 1 each compute the output of a query head, the others the mass.

    mass_n = Σ_g w_gn exp(level_then − level_g) / sum_g: the first kernel stored w relative to the maximum at that time,
    so weights are rescaled to the final maximum and divided by the sum of all parts.
    """
    head = tl.program_id(1).to(tl.int64)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    if tl.program_id(0) < G:
        read_of_parts(part, peak, total, output, head * G + tl.program_id(0), S, D, BLOCK_D, BLOCK_S)
    elif mass is not None:
        g = tl.arange(0, BLOCK_G)
        tile = (tl.program_id(0) - G) * TILES + tl.arange(0, TILES)
        n = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        is_weight = (n < N)[:, :, None] & (g < G)[None, None, :]  # (TILES, TILE, BLOCK_G)
        weight = tl.load(weights + (head * N + n)[:, :, None] * G + g[None, None, :], mask=is_weight, other=0.0)
        n_tiles = tl.cdiv(N, TILE)
        pointers = levels + (head * n_tiles + tile)[:, None] * G + g[None, :]
        level_then = tl.load(pointers, mask=(tile < n_tiles)[:, None] & (g < G)[None, :], other=float("-inf"))
        level, sum_of_weights = level_of_parts(peak, total, head * G + g, g < G, S, BLOCK_S)
        factor = 1 / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)  # without a visible slot all weights are 0
        # A tile without visible slots stored level 0, which may exceed the final level: the minimum avoids overflow.
        factor = factor[None, :] * tl.exp(tl.minimum(level_then - level[None, :], 0.0))
        slot_mass = tl.sum(weight.to(tl.float32) * factor[:, None, :], 2)
        tl.store(mass + head * N + n, slot_mass, mask=n < N)


def takes(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return whether the kernel supports slots with this layout in memory, for queries (B, H, G, 1, D)."""
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
    """Compute the attention output of one token per sequence, and the attention mass of each slot.

    Args:
        position: positions of the tokens; FREE for padding, whose output is 0.
        slot_position: positions of the keys, in any order. Later positions are masked, and so are FREE slots, which are
            not even loaded. None where each token attends to every slot.
        scaling: factor of the logits, such as 1 / sqrt(D).
        turns: the number of positions by which each key is rotated further. Both `turns` and `frequencies`, or neither.
        frequencies: the angle per position, in radians, for each pair of dimensions (i, i + D/2).
        with_mass: whether to compute the mass; otherwise it is None.

    Raises:
        ValueError: shapes, types or devices that do not fit each other.
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
    """Return the slots per tile: fewer for large keys, since a tile must fit into the shared memory of small GPUs."""
    return max(16, min(MOST_SLOTS, TILE_BYTES // (triton.next_power_of_2(keys.shape[3]) * keys.element_size())))


def _tiles_per_part(n_heads: int, n_tiles: int, device: torch.device) -> int:
    """Return the tiles per part, few enough that the parts of all heads fill the GPU."""
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
    """Draw random arguments for `launch` of a shape (B, H, G, N, D): the last token of a text of 2 N tokens.

    A random half of the tokens is kept, in random order.

    Args:
        gaps: some slots are FREE, and the last sequence is padding.
        turned: keys are rotated to rolling positions, the number of older tokens in the cache.
        every: all slots are visible, without a `slot_position`.
    """
    options = {"generator": generator, "device": generator.device}
    n_sequences, n_heads, n_groups, n_slots, size = shape
    query = torch.randn(n_sequences, n_heads * n_groups, size, **options).to(device, dtype)
    keys, values = (torch.randn(*shape[:2], n_slots, size, **options).to(device, dtype) for _ in range(2))
    order = torch.rand(*shape[:2], 2 * n_slots, **options).argsort(dim=2)
    slot_position = order[:, :, :n_slots].int().contiguous()
    rank = slot_position.argsort(dim=2).argsort(dim=2).int()
    turns, frequencies = rank - slot_position, 100.0 ** -torch.linspace(0, 1, size // 2)
    position = torch.full((n_sequences,), 2 * n_slots)
    if gaps:
        slot_position[torch.rand(slot_position.shape, **options) < 0.3] = FREE
        position[-1] = FREE
    extra = (turns.to(device), frequencies.to(device)) if turned else (None, None)
    slot_position = None if every else slot_position.to(device)
    return query, keys, values, position.to(device), slot_position, size**-0.5, *extra


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
