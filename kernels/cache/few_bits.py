"""Keys and values in 4 or 8 bits: one launch packs a token, one pass over the codes unpacks slots.

Dimension key: B sequences, H key-value heads, N slots in use, E some tokens, D size of a head, g groups of a vector, R
newest tokens that are kept unquantized.

In torch, unpacking takes a pass over float32 numbers for each of a dozen operations, and the host waits for the GPU to
find the newest tokens. Here a program handles some slots of a head: it reads half a byte per number and writes the
number.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, FREE, check_device, check_slots, check_tensor, is_slots, slot_room
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton
from torch import Tensor

__all__ = ["pack", "restore_", "runs_kernel", "takes", "unpack"]  # kernel_for asks for takes and runs_kernel

TILE = 16  # slots per program
TO_INTEGER = 12582912.0  # 1.5 * 2^23: a float32 of this size has no room for fractions
TINY = torch.finfo(torch.float16).tiny


def takes(*columns: Tensor, group: int | None = None) -> bool:
    """Return whether these columns have the memory layout of slots, with a power of 2 per group if there are groups."""
    are_slots = all(is_slots(column) for column in columns if column.numel())
    return are_slots and (group is None or (group > 1 and group & (group - 1) == 0))


@jit
def pack_kernel(
    vectors, codes, low, step, TOKENS, STRIDE_B, STRIDE_H, STRIDE_E, H: tl.constexpr, D: tl.constexpr,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr, TO_INTEGER: tl.constexpr,
    TINY: tl.constexpr,
):  # fmt: skip
    """One vector: minimum and step of each group in float16, and the codes, the earlier dimension in the low bits."""
    token = tl.program_id(0).to(tl.int64)  # of all: (sequence * H + head) * tokens + token
    e, head = token % TOKENS, token // TOKENS
    vectors += head // H * STRIDE_B + head % H * STRIDE_H + e * STRIDE_E
    IN_BYTE: tl.constexpr = 8 // BITS
    MOST: tl.constexpr = 2**BITS - 1
    group, i = tl.arange(0, BLOCK), tl.arange(0, GROUP // IN_BYTE)
    inside = (group < GROUPS)[:, None] & (i >= 0)[None, :]
    d = group[:, None] * GROUP + i[None, :] * IN_BYTE
    first = tl.load(vectors + d, mask=inside, other=0.0).to(tl.float32)
    least, most = tl.min(first, 1), tl.max(first, 1)
    second = first
    if BITS == 4:
        second = tl.load(vectors + d + 1, mask=inside, other=0.0).to(tl.float32)
        least, most = tl.minimum(least, tl.min(second, 1)), tl.maximum(most, tl.max(second, 1))
    base = least.to(tl.float16)
    width = tl.maximum(tl.div_rn(most - base.to(tl.float32), tl.full([BLOCK], MOST, tl.float32)), TINY).to(tl.float16)
    tl.store(low + token * GROUPS + group, base, mask=group < GROUPS)
    tl.store(step + token * GROUPS + group, width, mask=group < GROUPS)
    base, width = base.to(tl.float32)[:, None], width.to(tl.float32)[:, None] + tl.zeros_like(first)
    code = tl.div_rn(first - base, width)
    code = (tl.minimum(tl.maximum(code, 0.0), MOST) + TO_INTEGER) - TO_INTEGER
    byte = code.to(tl.int32)
    if BITS == 4:
        code = tl.div_rn(second - base, width)
        code = (tl.minimum(tl.maximum(code, 0.0), MOST) + TO_INTEGER) - TO_INTEGER
        byte = byte | (code.to(tl.int32) << 4)
    at = codes + token * (D // IN_BYTE) + group[:, None] * (GROUP // IN_BYTE) + i[None, :]
    tl.store(at, byte.to(tl.uint8), mask=inside)


def pack(vectors: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes (B, H, E, D * bits / 8) of vectors (B, H, E, D), contiguous along D, minimum and step per group."""
    n_heads, n_tokens, size = vectors.shape[1:]
    if vectors.stride(3) != 1 or size % group or vectors.dtype not in FLOATS:
        raise ValueError(
            f"vectors are {vectors.dtype} of shape {tuple(vectors.shape)} and strides {vectors.stride()}: expected "
            f"floats, groups of {group} and the last axis contiguous; call .contiguous()"
        )
    shape, n_groups = vectors.shape[:3], size // group
    codes = torch.empty(*shape, size * bits // 8, dtype=torch.uint8, device=vectors.device)
    low, step = torch.empty(2, *shape, n_groups, dtype=torch.float16, device=vectors.device)
    with torch.cuda.device_of(vectors):
        pack_kernel[(shape.numel(),)](
            vectors, codes, low, step, n_tokens, *vectors.stride()[:3], H=n_heads, D=size, GROUPS=n_groups,
            GROUP=group, BITS=bits, BLOCK=triton.next_power_of_2(n_groups), TO_INTEGER=TO_INTEGER, TINY=TINY,
            num_warps=1,
        )  # fmt: skip
    return codes, low, step


@jit(lengths=("N", "ROOM"))
def unpack_kernel(
    codes, low, step, vectors, N, ROOM, D: tl.constexpr, GROUPS: tl.constexpr, BITS: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """low + code * step of TILE slots of one head."""
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + head
    n, d = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, BLOCK_D)
    inside = (n < N)[:, None] & (d < D)[None, :]
    slot, first = n[:, None], head * ROOM
    codes, low, step = codes + first * (D * BITS // 8), low + first * GROUPS, step + first * GROUPS
    byte = tl.load(codes + slot * (D * BITS // 8) + (d * BITS // 8)[None, :], mask=inside, other=0).to(tl.int32)
    code = (byte >> (d * BITS % 8)[None, :]) & (2**BITS - 1)
    group = slot * GROUPS + (d // (D // GROUPS))[None, :]
    base = tl.load(low + group, mask=inside, other=0.0).to(tl.float32)
    width = tl.load(step + group, mask=inside, other=0.0).to(tl.float32)
    number = code.to(tl.float32) * width + base
    tl.store(vectors + head * N * D + slot * D + d[None, :], number.to(vectors.dtype.element_ty), mask=inside)


def unpack(codes: Tensor, low: Tensor, step: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """Return the vectors (B, H, N, D) of the first N slots."""
    n_sequences, n_heads, n_slots, size = *codes.shape[:3], codes.shape[3] * 8 // bits
    check_slots("codes", codes, (n_sequences, n_heads, n_slots, size * bits // 8), (torch.uint8,))
    for name, column in (("low", low), ("step", step)):
        check_slots(name, column, (n_sequences, n_heads, n_slots, low.shape[3]), (torch.float16,))
        if slot_room(column) != slot_room(codes):
            raise ValueError(f"{name} has room for {slot_room(column)} slots: expected {slot_room(codes)}, as codes")
    check_device(codes=codes, low=low, step=step)
    vectors = torch.empty(n_sequences, n_heads, n_slots, size, dtype=dtype, device=codes.device)
    with torch.cuda.device_of(codes):
        unpack_kernel[triton.cdiv(n_slots, TILE), n_sequences * n_heads](
            codes, low, step, vectors, n_slots, slot_room(codes), D=size, GROUPS=low.shape[3], BITS=bits,
            BLOCK_D=triton.next_power_of_2(size), TILE=TILE, num_warps=4,
        )  # fmt: skip
    return vectors


@jit(lengths=("N", "ROOM"))
def restore_kernel(
    vectors, ring, position, n_seen, N, ROOM, FREE: tl.constexpr, H: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Of TILE slots of one head, those of the R newest tokens become what the ring holds of them."""
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + head
    n, d = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, BLOCK_D)
    at = tl.load(position + head * ROOM + n, mask=n < N, other=FREE)
    newest = (at != FREE) & (at >= tl.load(n_seen + head // H) - R)
    if tl.max(newest.to(tl.int32), 0) > 0:  # most tiles have none
        place = (head * R + tl.where(newest, at % R, 0))[:, None] * D + d[None, :]
        wanted = newest[:, None] & (d < D)[None, :]
        exact = tl.load(ring + place, mask=wanted, other=0.0)
        tl.store(vectors + (head * N + n)[:, None] * D + d[None, :], exact, mask=wanted)


def restore_(vectors: Tensor, ring: Tensor, position: Tensor, n_seen: Tensor) -> Tensor:
    """Restore the newest tokens among vectors (B, H, N, D) from a ring (B, H, R, D): position p is in entry p mod R."""
    n_sequences, n_heads, n_slots, size = vectors.shape
    check_tensor("vectors", vectors, vectors.shape, FLOATS)
    check_tensor("ring", ring, (n_sequences, n_heads, ring.shape[2], size), (vectors.dtype,))
    check_slots("position", position, (n_sequences, n_heads, n_slots), (torch.int32,))
    check_tensor("n_seen", n_seen, (n_sequences,), (torch.int64,))
    check_device(vectors=vectors, ring=ring, position=position, n_seen=n_seen)
    with torch.cuda.device_of(vectors):
        restore_kernel[triton.cdiv(n_slots, TILE), n_sequences * n_heads](
            vectors, ring, position, n_seen, n_slots, slot_room(position), FREE=FREE, H=n_heads, R=ring.shape[2],
            D=size, BLOCK_D=triton.next_power_of_2(size), TILE=TILE, num_warps=4,
        )  # fmt: skip
    return vectors
