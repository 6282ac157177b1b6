"""Attention of one new token in the heads that it needs; the other heads give zeros.

Liu, Wang, Dao and others, 2023, Deja Vu, https://arxiv.org/abs/2310.17157 (section 4.4: its kernels for sparse heads).

Dimension key: B sequences, H key-value heads, G query heads to each, heads = H * G, N slots, D size of a head, S parts
that the slots are split into.

One token is bound by memory, by the keys and values that it reads. Where each query head has keys and values of its own
(OPT), half of the heads are half of the bytes. In groups (Llama), G query heads read the same keys and values, so bytes
fall only where a whole group is left out: dropping two of three heads may save nothing. `bytes_moved` counts exactly
that. The projections before and after are not part of this kernel; there, each query head saves its own share.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_slots, check_tensor, slot_room
from course_lib.kernels.runtime import INTERPRETED, jit, programs_to_fill, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import product, read_of_parts
from jaxtyping import Bool, Float
from torch import Tensor

TILE_BYTES = 2**15  # of keys that a program has at a time, at most
PIECE = 16  # slots: a part is a multiple of it
# Of the first kernel. All are on the GPU at once where half of the groups are kept; the others' programs end at once.
PROGRAMS_A_PROCESSOR = 8
PROGRAMS = 8  # of the first kernel, where no GPU says how many it can hold
# For the tests: an odd number of heads and ragged tiles; one head alone; all, whole tiles; none; a head to each.
CASES = (
    {"shape": (2, 2, 3, 70, 24), "n_kept": 3},
    {"shape": (1, 3, 2, 33, 16), "n_kept": 1},
    {"shape": (1, 2, 2, 128, 64), "n_kept": 4},
    {"shape": (2, 1, 3, 5, 8), "n_kept": 0},
    {"shape": (1, 5, 1, 17, 40), "n_kept": 2},
)


def reference(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    keep: Bool[Tensor, "B heads"],
    scaling: float,
) -> Float[Tensor, "B heads D"]:
    """softmax(q Kᵀ · scaling) V in float32 for the heads that are kept, zeros for the others."""
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
    """Keys, values and queries of the groups of which any head is kept; the choice; all outputs."""
    _, n_heads, n_slots, size = keys.shape
    n_awake = int(keep.unflatten(1, (n_heads, -1)).any(dim=2).sum())
    n_numbers = n_awake * (2 * n_slots + query.shape[1] // n_heads) * size + query.numel()
    return n_numbers * query.element_size() + keep.nbytes


@tuned(
    ["N_CLASS", "HEADS_CLASS", "G", "D"],
    {"TILE": 64, "num_warps": 4, "num_stages": 2},
    {"TILE": 64, "num_warps": 4, "num_stages": 3},
    {"TILE": 32, "num_warps": 1, "num_stages": 4},
)
@jit(lengths=("N", "N_CLASS", "HEADS_CLASS", "PART", "S", "KEY_ROOM", "VALUE_ROOM"))
def part_kernel(
    query, keys, values, keep, part, peak, total, scaling, N, N_CLASS, HEADS_CLASS, PART, S, KEY_ROOM, VALUE_ROOM,
    UPCAST: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr,
    MOST: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One part of one group's slots, before it is normalised. A group of which no head is kept reads nothing."""
    BLOCK_N: tl.constexpr = TILE if TILE < MOST else MOST
    head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * H + key-value head
    g, d = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D)
    wanted = tl.load(keep + head * G + g, mask=g < G, other=0).to(tl.int32) > 0
    if tl.max(wanted.to(tl.int32), 0) > 0:
        row = (head * G + g)[:, None] * D + d[None, :]
        # Of all heads: with a mask that was loaded as bytes, the compiler takes q for bytes and lays keys out for them.
        q = tl.load(query + row, mask=(g < G)[:, None] & (d < D)[None, :], other=0.0)
        best = tl.full([BLOCK_G], float("-inf"), tl.float32)
        sum_of_weights = tl.zeros([BLOCK_G], tl.float32)
        read = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
        start = tl.program_id(0) * PART
        stop = tl.minimum(start + PART, N)
        for first in range(start, stop, BLOCK_N):
            n = first + tl.arange(0, BLOCK_N)
            key_at = keys + (head * KEY_ROOM + n)[None, :] * D + d[:, None]
            key = tl.load(key_at, mask=(n < stop)[None, :] & (d < D)[:, None], other=0.0)
            logit = tl.where((n < stop)[None, :], product(q, key, UPCAST) * scaling, float("-inf"))
            higher = tl.maximum(best, tl.max(logit, 1))  # every tile has a slot, so this is a number
            weight, fade = tl.exp(logit - higher[:, None]), tl.exp(best - higher)
            value_at = values + (head * VALUE_ROOM + n)[:, None] * D + d[None, :]
            value = tl.load(value_at, mask=(n < stop)[:, None] & (d < D)[None, :], other=0.0)
            sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
            read = read * fade[:, None] + product(weight.to(value.dtype), value, UPCAST)
            best = higher
        row = (head * G + g) * S + tl.program_id(0)
        tl.store(peak + row, best, mask=wanted)
        tl.store(total + row, sum_of_weights, mask=wanted)
        tl.store(part + row[:, None] * D + d[None, :], read, mask=wanted[:, None] & (d < D)[None, :])


@jit(lengths=("S",))
def heads_kernel(keep, part, peak, total, output, S, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """The parts of one query head, joined by their maxima and sums; zeros for a head that is not kept."""
    head = tl.program_id(0).to(tl.int64)
    wanted = tl.load(keep + head).to(tl.int32) > 0
    read_of_parts(part, peak, total, output, head, tl.where(wanted, S, 0), D, BLOCK_D)


def launch(
    query: Float[Tensor, "B heads D"],
    keys: Float[Tensor, "B H N D"],
    values: Float[Tensor, "B H N D"],
    keep: Bool[Tensor, "B heads"],
    scaling: float,
) -> Float[Tensor, "B heads D"]:
    """The attention output of one token of each sequence in the heads that are kept; each sequence may keep others.

    Args:
        query: turned to its position, as the keys are. Query heads of a group are neighbours.
        keys, values: all slots are seen; they may be the first of a cache with room for more.
    """
    _check(query, keys, values, keep)
    if not runs_kernel(query) or not keys.numel():
        return reference(query, keys, values, keep, scaling)
    (n_sequences, n_heads, n_slots, size), n_groups = keys.shape, query.shape[1] // keys.shape[1]
    most = max(16, TILE_BYTES // (triton.next_power_of_2(size) * keys.element_size()))
    per_part = PIECE * _pieces_per_part(n_sequences * n_heads, triton.cdiv(n_slots, PIECE), query.device)
    n_parts = triton.cdiv(n_slots, per_part)
    part = torch.empty((*query.shape[:2], n_parts, size), dtype=torch.float32, device=query.device)
    peak, total = (torch.empty(part.shape[:3], dtype=torch.float32, device=query.device) for _ in range(2))
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    sizes = {"S": n_parts, "D": size, "BLOCK_D": max(16, triton.next_power_of_2(size))}
    classes = triton.next_power_of_2(n_slots), triton.next_power_of_2(n_sequences * n_heads)
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        part_kernel[n_parts, n_sequences * n_heads](
            query, keys, values, keep, part, peak, total, float(scaling), N=n_slots, N_CLASS=classes[0],
            HEADS_CLASS=classes[1], PART=per_part, KEY_ROOM=slot_room(keys), VALUE_ROOM=slot_room(values),
            UPCAST=INTERPRETED, G=n_groups, BLOCK_G=max(16, triton.next_power_of_2(n_groups)), MOST=most, **sizes,
        )  # fmt: skip
        heads_kernel[keep.numel(),](keep, part, peak, total, output, **sizes)
    return output


def _pieces_per_part(n_heads: int, n_pieces: int, device: torch.device) -> int:
    """So few that the parts of all heads keep a GPU busy."""
    n_programs = programs_to_fill(device, PROGRAMS_A_PROCESSOR, PROGRAMS)
    return max(1, triton.cdiv(n_pieces, max(1, n_programs // n_heads)))


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int, int],
    n_kept: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Random arguments for `launch`, of a shape (B, H, G, N, D), with so many query heads kept of each sequence."""
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
