"""Attention of one new token in the heads that it needs; the output of all other heads is zero.

Liu, Wang, Dao and others, 2023, Deja Vu, https://arxiv.org/abs/2310.17157 (section 4.4: its kernels for sparse heads).

Dimension key: B sequences, H key-value heads (in the kernels those of all sequences), G query heads to each, heads = H
* G, N slots, D size of a head, P programs, S parts that a group's slots are split into.

One token is bound by memory, by the keys and values that it reads. If each query head has its own keys and values
(OPT), half of the heads need half of the bytes. In groups (Llama), G query heads read the same keys and values, so
bytes are saved only if a whole group is skipped: skipping two of three heads may save nothing. `bytes_moved` counts
exactly that. The projections before and after are not part of this kernel; there, each query head saves its own part.

On an H200, 8 heads of 32768 slots and 128 numbers in bfloat16 take 48 µs without groups and 49 µs in groups of four,
while sdpa takes 49 and 50 µs; half of the groups take 32 µs. Tiles of 32 or 128 slots, two or five stages, and one,
three or four programs per processor were not faster by more than half a microsecond. Both times are 16 to 18 µs above
their bounds of 31 and 16 µs: a fixed cost (starting, ending, the second kernel) rather than a lower rate.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_slots, check_tensor, slot_room
from course_lib.kernels.runtime import INTERPRETED, jit, overlap_of, programs_to_fill, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import product
from jaxtyping import Bool, Float
from torch import Tensor

TILE_BYTES = 2**14  # maximum of keys per program at a time
PIECE = 16  # slots: the part of each program is a multiple of it
PROGRAMS_A_PROCESSOR = 2  # of the first kernel, all on the GPU at once
PROGRAMS = 8  # of the first kernel, without a GPU
MOST_GROUPS = 2**12  # of all sequences: every program checks which of them are kept
JOINED_NUMBERS, JOINED_PARTS = 64, 64  # of a head, per program of the second kernel at a time
# For the tests: an odd number of heads and ragged tiles; one head alone; all, whole tiles; none; a head to each; more
# groups than programs.
CASES = (
    {"shape": (2, 2, 3, 70, 24), "n_kept": 3},
    {"shape": (1, 3, 2, 33, 16), "n_kept": 1},
    {"shape": (1, 2, 2, 128, 64), "n_kept": 4},
    {"shape": (2, 1, 3, 5, 8), "n_kept": 0},
    {"shape": (1, 5, 1, 17, 40), "n_kept": 2},
    {"shape": (5, 3, 2, 9, 16), "n_kept": 2},
)


def reference(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    keep: Bool[Tensor, "B heads"],
    scaling: float,
) -> Float[Tensor, "B heads D"]:
    """Compute softmax(q Kᵀ · scaling) V in float32 for the kept heads, and zeros for the others."""
    output = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    n_groups = query.shape[1] // keys.shape[1]
    for sequence, head in keep.nonzero().tolist():
        key, value = keys[sequence, head // n_groups].float(), values[sequence, head // n_groups].float()
        output[sequence, head] = (query[sequence, head].float() * scaling @ key.T).softmax(dim=0) @ value
    return output.to(query.dtype)


def bytes_moved(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    keep: Bool[Tensor, "B heads"],
    scaling: float,
) -> int:
    """Count keys, values and queries of the groups with a kept head, the choice, and all outputs."""
    _, n_heads, n_slots, size = keys.shape
    n_awake = int(keep.unflatten(1, (n_heads, -1)).any(dim=2).sum())
    n_numbers = n_awake * (2 * n_slots + query.shape[1] // n_heads) * size + query.numel()
    return n_numbers * query.element_size() + keep.nbytes


@jit
def awake_groups(keep, H, G: tl.constexpr, BLOCK_H: tl.constexpr):
    """Which of the groups, those of all sequences, have a head that is kept."""
    h = tl.arange(0, BLOCK_H)
    awake = tl.zeros([BLOCK_H], tl.int32)
    for g in tl.static_range(G):
        kept = tl.load(keep + h * G + g, mask=h < H, other=0).to(tl.int32)
        awake = tl.maximum(awake, (kept > 0).to(tl.int32))
    return awake


@tuned(["G", "D"], {"TILE": 64, "num_warps": 4, "num_stages": 3})
@jit(lengths=("N", "H", "P", "KEY_ROOM", "VALUE_ROOM"))
def part_kernel(
    query, keys, values, keep, part, peak, total, scaling, N, H, P, KEY_ROOM, VALUE_ROOM,
    UPCAST: tl.constexpr, OVERLAP: tl.constexpr, PIECE: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr, MOST: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The slots of all groups with a kept head, divided evenly: the p-th of P ranges, before it is normalised.

    A range may begin inside one group and end inside another: what it reads of a group is one part.
    """
    BLOCK_N: tl.constexpr = TILE if TILE < MOST else MOST
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    g, d = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D)
    n_up_to = tl.cumsum(awake_groups(keep, H, G, BLOCK_H), 0)
    n_pieces = tl.cdiv(N, PIECE)  # of a group
    work = tl.max(n_up_to, 0).to(tl.int64) * n_pieces
    p = tl.program_id(0)
    start, stop = (p * work // P).to(tl.int32), ((p + 1) * work // P).to(tl.int32)
    for nth in range(start // n_pieces, tl.cdiv(stop, n_pieces)):  # of the groups with a head that is kept
        head = tl.sum((n_up_to <= nth).to(tl.int32), 0).to(tl.int64)  # of all sequences: sequence * H + key-value head
        row = (head * G + g)[:, None] * D + d[None, :]
        # Of all heads: with a mask that was loaded as bytes, the compiler takes q for bytes and lays keys out for them.
        q = tl.load(query + row, mask=(g < G)[:, None] & (d < D)[None, :], other=0.0)
        best = tl.full([BLOCK_G], float("-inf"), tl.float32)
        sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
        read = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
        begin = tl.maximum(start - nth * n_pieces, 0) * PIECE
        end = tl.minimum(tl.minimum(stop - nth * n_pieces, n_pieces) * PIECE, N)
        for first in range(begin, end, BLOCK_N):
            n = first + tl.arange(0, BLOCK_N)
            key_at = keys + (head * KEY_ROOM + n)[None, :] * D + d[:, None]
            key = tl.load(key_at, mask=(n < end)[None, :] & (d < D)[:, None], other=0.0)
            logit = tl.where((n < end)[None, :], product(q, key, UPCAST) * scaling, float("-inf"))
            higher = tl.maximum(best, tl.max(logit, 1))  # every tile has a slot, so this is a number
            weight, fade = tl.exp(logit - higher[:, None]), tl.exp(best - higher)
            value_at = values + (head * VALUE_ROOM + n)[:, None] * D + d[None, :]
            value = tl.load(value_at, mask=(n < end)[:, None] & (d < D)[None, :], other=0.0)
            sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
            read = read * fade[:, None] + product(weight.to(value.dtype), value, UPCAST)
            best = higher
        # From part to part the program's number rises, or the group's, or both: their sum is the part's own place.
        row = (p + nth).to(tl.int64) * G + g
        tl.store(peak + row, best, mask=g < G)
        tl.store(total + row, sum_of_weights, mask=g < G)
        tl.store(part + row[:, None] * D + d[None, :], read, mask=(g < G)[:, None] & (d < D)[None, :])


@jit(lengths=("N", "H", "P"))
def heads_kernel(
    keep, part, peak, total, output, N, H, P, OVERLAP: tl.constexpr, PIECE: tl.constexpr, G: tl.constexpr,
    D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """The parts of one query head, joined by their maxima and sums; zeros for a head that is not kept."""
    head, d = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    wanted = tl.load(keep + head).to(tl.int32) > 0
    awake, n_pieces = awake_groups(keep, H, G, BLOCK_H), tl.cdiv(N, PIECE)
    nth = tl.sum(tl.where(tl.arange(0, BLOCK_H) < head // G, awake, 0), 0)
    work = tl.maximum(tl.sum(awake, 0), 1).to(tl.int64) * n_pieces
    # The programs whose shares hold the group's first piece and its last: p is the largest with p work / P <= piece.
    first = ((nth * n_pieces + 1).to(tl.int64) * P - 1) // work
    last = (((nth + 1) * n_pieces).to(tl.int64) * P - 1) // work
    S = tl.where(wanted, last - first + 1, 0).to(tl.int32)
    best, sum_of_weights = float("-inf"), 0.0
    read = tl.zeros([BLOCK_D], tl.float32)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    for begin in range(0, S, BLOCK_S):
        s = begin + tl.arange(0, BLOCK_S)
        row = (first + nth + s) * G + head % G
        of_part = tl.load(peak + row, mask=s < S, other=float("-inf"))
        weight = tl.load(total + row, mask=s < S, other=0.0)
        inside = (s < S)[:, None] & (d < D)[None, :]
        numbers = tl.load(part + row[:, None] * D + d[None, :], mask=inside, other=0.0)
        higher = tl.maximum(best, tl.max(of_part, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        share, fade = tl.exp(of_part - level), tl.exp(best - level)
        sum_of_weights = sum_of_weights * fade + tl.sum(share * weight, 0)
        read = read * fade + tl.sum(share[:, None] * numbers, 0)
        best = higher
    read = read / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)
    tl.store(output + head * D + d, read.to(output.dtype.element_ty), mask=d < D)


def takes(query: Tensor, keys: Tensor | None = None, values: Tensor | None = None) -> bool:
    """Return whether the kernel supports these tensors; with only a query, whether it supports some keys and values."""
    if keys is None or values is None:
        return True
    one_type, whole = query.dtype == keys.dtype == values.dtype, keys.is_contiguous() and values.is_contiguous()
    return one_type and whole and keys.shape == values.shape and keys.shape[0] * keys.shape[1] <= MOST_GROUPS


def launch(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    keep: Bool[Tensor, "B heads"],
    scaling: float,
) -> Float[Tensor, "B heads D"]:
    """Compute the attention output of one token per sequence in the kept heads, which may differ between sequences.

    Args:
        query: rotated to its position, as the keys are. The query heads of a group are adjacent.
        keys, values: all slots are visible; they may be the first slots of a cache with more room.
    """
    _check(query, keys, values, keep)
    if not runs_kernel(query) or not keys.numel():
        return reference(query, keys, values, keep, scaling)
    (n_sequences, n_heads, n_slots, size), n_groups = keys.shape, query.shape[1] // keys.shape[1]
    n_rows, most = n_sequences * n_heads, max(16, TILE_BYTES // (triton.next_power_of_2(size) * keys.element_size()))
    # No more programs than pieces: a program without a piece would wait for nothing.
    n_programs = programs_to_fill(query.device, PROGRAMS_A_PROCESSOR, PROGRAMS)
    n_programs = min(n_programs, n_rows * triton.cdiv(n_slots, PIECE))
    part = torch.empty((n_programs + n_rows, n_groups, size), dtype=torch.float32, device=query.device)
    peak, total = (torch.empty(part.shape[:2], dtype=torch.float32, device=query.device) for _ in range(2))
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    overlap, block_d = overlap_of(query.device), max(16, triton.next_power_of_2(size))
    sizes = {"N": n_slots, "H": n_rows, "P": n_programs, "PIECE": PIECE, "G": n_groups, "D": size}
    sizes |= {"BLOCK_H": triton.next_power_of_2(n_rows), "OVERLAP": bool(overlap)}
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        part_kernel[n_programs,](
            query, keys, values, keep, part, peak, total, float(scaling), KEY_ROOM=slot_room(keys),
            VALUE_ROOM=slot_room(values),
            UPCAST=INTERPRETED, BLOCK_G=max(16, triton.next_power_of_2(n_groups)), BLOCK_D=block_d, MOST=most, **sizes,
        )  # fmt: skip
        block_d = min(block_d, JOINED_NUMBERS)
        heads_kernel[keep.numel(), triton.cdiv(size, block_d)](
            keep, part, peak, total, output, BLOCK_D=block_d, BLOCK_S=JOINED_PARTS, **sizes, **overlap
        )
    return output


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int, int],
    n_kept: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Draw random arguments for `launch`, of a shape (B, H, G, N, D), with `n_kept` kept query heads per sequence."""
    where = {"generator": generator, "device": generator.device}
    n_sequences, n_heads, n_groups, n_slots, size = shape
    query = torch.randn(n_sequences, n_heads * n_groups, size, **where).to(device, dtype)
    keys, values = (torch.randn(*shape[:2], n_slots, size, **where).to(device, dtype) for _ in range(2))
    rank = torch.rand(query.shape[:2], **where).argsort(dim=1).argsort(dim=1)
    return query, keys, values, (rank < n_kept).to(device), size**-0.5


def _check(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor) -> None:
    if query.ndim != 3 or keys.ndim != 4 or not keys.shape[1] or query.shape[1] % keys.shape[1]:
        raise ValueError(
            f"query has shape {tuple(query.shape)} and keys {tuple(keys.shape)}: expected (sequences, heads, size) and "
            "(sequences, key-value heads, slots, size), with a multiple of heads; take one token of each"
        )
    n_sequences, n_heads, n_slots, size = keys.shape
    if not n_slots:
        raise ValueError("keys have no slots: expected one at least, that of the token itself; append it first")
    check_tensor("query", query, (n_sequences, query.shape[1], size), FLOATS)
    check_slots("keys", keys, (n_sequences, n_heads, n_slots, size), (query.dtype,))
    check_slots("values", values, (n_sequences, n_heads, n_slots, size), (query.dtype,))
    check_tensor("keep", keep, (n_sequences, query.shape[1]), (torch.bool,))
    check_device(query=query, keys=keys, values=values, keep=keep)
