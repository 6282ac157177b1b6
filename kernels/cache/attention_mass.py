"""How much attention each key received: the column sums of softmax attention, without its matrix and without values.

Dimension key: B sequences, H key-value heads, G query heads to each, heads = H * G, Q queries, N slots (keys),
D size of a head.

mass[j] = sum over g and i of exp(scaling * q_gi . k_j - lse_gi), where lse_gi is the log of the query's softmax
denominator, which fused attention computes anyway. With lse, the columns are independent: a program handles a tile of
keys and one query head, sums over all queries in registers, and writes each sum once; then the sums of the G heads are
added. Eager attention writes G * Q * N weights before it adds them.
The work is one of the two products of attention, so for a prompt it is bound by arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
from course_lib.kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import product
from jaxtyping import Float, Int
from torch import Tensor

LOG2_E = math.log2(math.e)
CHUNK = 2**21  # attention weights that the reference has in memory at once
MOST_HEADS = 2**16 - 1  # query heads of all sequences: as many programs as a GPU starts in the second direction
MOST_SIZE = 256  # of a head
# For the tests: ragged tiles of keys, queries and head size, with FREE slots and padding; whole tiles; a single weight;
# a prompt without gaps.
CASES = (
    {"shape": (2, 2, 3, 11, 70, 24), "gaps": True},
    {"shape": (1, 1, 1, 64, 64, 64)},
    {"shape": (1, 1, 1, 1, 1, 8)},
    {"shape": (1, 1, 2, 67, 67, 40)},
)


def log_sum_exp(
    query: Float[Tensor, "B heads Q D"],
    keys: Float[Tensor, "B H N D"],
    position: Int[Tensor, "B Q"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
) -> Float[Tensor, "B heads Q"]:
    """Compute log of sum_j exp(scaling * q_i . k_j) over the visible keys of each query, in float32; -inf if none."""
    lse = torch.zeros(query.shape[:3], dtype=torch.float32, device=query.device)
    for some, logits, seen in _chunks(query, keys, position, slot_position, scaling):
        lse[:, :, some] = logits.masked_fill_(~seen, float("-inf")).logsumexp(dim=-1).flatten(1, 2)
    return lse


def reference(
    query: Float[Tensor, "B heads Q D"],
    keys: Float[Tensor, "B H N D"],
    lse: Float[Tensor, "B heads Q"],
    position: Int[Tensor, "B Q"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
) -> Float[Tensor, "B H N"]:
    """Compute the same in float32, for some queries at a time."""
    mass = torch.zeros(slot_position.shape, dtype=torch.float32, device=keys.device)
    for some, logits, seen in _chunks(query, keys, position, slot_position, scaling):
        logits -= lse[:, :, some].unflatten(1, (keys.shape[1], -1))[..., None]
        mass += logits.exp_().masked_fill_(~seen, 0).sum(dim=(2, 3))
    return mass


def bytes_moved(
    query: Float[Tensor, "B heads Q D"],
    keys: Float[Tensor, "B H N D"],
    lse: Float[Tensor, "B heads Q"],
    position: Int[Tensor, "B Q"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
) -> int:
    """Count the bytes to move at least: every input is read once, a float32 per slot is written once."""
    read = (query, keys, lse, position, slot_position)
    return sum(tensor.nbytes for tensor in read) + 4 * slot_position.numel()


@tuned(
    ["Q_CLASS", "N_CLASS", "G", "D"],
    {"BLOCK_N": 64, "BLOCK_Q": 64, "num_warps": 4, "num_stages": 2},
    {"BLOCK_N": 128, "BLOCK_Q": 64, "num_warps": 4, "num_stages": 3},
    float32=({"BLOCK_N": 32, "BLOCK_Q": 32, "num_warps": 4, "num_stages": 2},),
)
@jit(lengths=("Q", "Q_CLASS", "N", "N_CLASS", "KEY_ROOM", "POSITION_ROOM"))
def mass_kernel(
    query, keys, lse, position, slot_position, mass, scaling,
    Q, Q_CLASS, N, N_CLASS, KEY_ROOM, POSITION_ROOM, FREE: tl.constexpr, UPCAST: tl.constexpr,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """BLOCK_N keys stay on chip while the queries of one query head pass by, from the first that sees one.

    Nothing that is loaded in the loop waits for something else that is, so loads run ahead: queries of padding are
    read too, and see no key. Exponentials are powers of 2, whose factor `scaling` holds.
    """
    LOG2_E: tl.constexpr = 1.4426950408889634
    query_head = tl.program_id(1).to(tl.int64)  # of all sequences: sequence * heads + query head
    head = query_head // G  # sequence * H + key-value head
    position += head // H * Q
    query += query_head * Q * D
    lse += query_head * Q
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    key_at = tl.load(slot_position + head * POSITION_ROOM + n, mask=n < N, other=FREE)
    key = (head * KEY_ROOM + n)[None, :] * D + d[:, None]
    k = tl.load(keys + key, mask=(key_at != FREE)[None, :] & (d < D)[:, None], other=0.0)
    earliest = tl.min(key_at, 0)
    first = Q
    for start in range(0, Q, BLOCK_Q):
        i = start + tl.arange(0, BLOCK_Q)
        at = tl.load(position + i, mask=i < Q, other=FREE)
        first = tl.minimum(first, tl.min(tl.where((at >= earliest) & (at != FREE), i, Q), 0))
    total = tl.zeros([BLOCK_Q, BLOCK_N], tl.float32)  # rows are queries: a thread has few of them, with their sums
    for start in range(first // BLOCK_Q * BLOCK_Q, Q, BLOCK_Q):
        i = start + tl.arange(0, BLOCK_Q)
        inside = i < Q
        at = tl.load(position + i, mask=inside, other=FREE)
        at = tl.where(at == FREE, -1, at).to(tl.int32)
        size = tl.load(lse + i, mask=inside, other=0.0) * LOG2_E
        row = i.to(tl.int64)[:, None] * D + d[None, :]
        q = tl.load(query + row, mask=inside[:, None] & (d < D)[None, :], other=0.0)
        logit = product(q, k, UPCAST)
        total += tl.where(key_at[None, :] <= at[:, None], tl.exp2(logit * scaling - size[:, None]), 0.0)
    tl.store(mass + query_head * N + n, tl.sum(total, 0), mask=n < N)


def takes(query: Tensor, keys: Tensor) -> bool:
    """Return whether the kernel supports slots with this layout in memory, for queries (B, H, G, Q, D)."""
    alike = query.dtype == keys.dtype and is_slots(keys)
    return alike and query.shape[:3].numel() <= MOST_HEADS and keys.shape[3] <= MOST_SIZE


def launch(
    query: Float[Tensor, "B heads Q D"],
    keys: Float[Tensor, "B H N D"],
    lse: Float[Tensor, "B heads Q"],
    position: Int[Tensor, "B Q"],
    slot_position: Int[Tensor, "B H N"],
    scaling: float,
) -> Float[Tensor, "B H N"]:
    """Compute the attention that each slot receives from the queries that see it, summed over its group's heads.

    Args:
        lse: natural log of each query's softmax denominator, including scaling; `log_sum_exp` computes it.
        position: of the queries; FREE for padding, which contributes nothing.
        slot_position: of the keys, in any order; a query sees its own and earlier positions. A FREE slot gets 0.
    """
    _check(query, keys, lse, position, slot_position)
    if not runs_kernel(query):
        return reference(query, keys, lse, position, slot_position, scaling)
    (_, n_heads, n_slots, size), n_queries = keys.shape, query.shape[2]
    # By query head, so that enough programs are started, and added up in one order.
    mass = torch.empty(*query.shape[:2], n_slots, dtype=torch.float32, device=query.device)
    # The classes: tuned again when a length doubles, not for each length.
    lengths = {"Q": n_queries, "Q_CLASS": triton.next_power_of_2(n_queries)}
    lengths |= {"N": n_slots, "N_CLASS": triton.next_power_of_2(n_slots)}
    lengths |= {"KEY_ROOM": slot_room(keys), "POSITION_ROOM": slot_room(slot_position)}
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        mass_kernel[lambda meta: (triton.cdiv(n_slots, meta["BLOCK_N"]), query.shape[:2].numel())](
            query, keys, lse, position, slot_position, mass, scaling * LOG2_E, **lengths, FREE=FREE, UPCAST=INTERPRETED,
            H=n_heads, G=query.shape[1] // n_heads, D=size, BLOCK_D=max(16, triton.next_power_of_2(size)),
        )  # fmt: skip
    by_head = mass.unflatten(1, (n_heads, -1))
    return by_head[:, :, 0] if by_head.shape[2] == 1 else by_head.sum(dim=2)


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int, int, int],
    gaps: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
    """Draw random arguments for `launch`, of a shape (B, H, G, Q, N, D): the last Q queries of a text.

    The N tokens of the text are in any order. With gaps, some slots are FREE and the last sequence begins with padding.
    """
    where = {"generator": generator, "device": generator.device}
    n_sequences, n_heads, n_groups, n_queries, n_slots, size = shape
    query = torch.randn(n_sequences, n_heads * n_groups, n_queries, size, **where).to(dtype)
    keys = torch.randn(n_sequences, n_heads, n_slots, size, **where).to(dtype)
    position = torch.arange(n_slots - n_queries, n_slots, device=generator.device).repeat(n_sequences, 1)
    slot_position = torch.rand(n_sequences, n_heads, n_slots, **where).argsort(dim=2).int()
    if gaps:
        slot_position[torch.rand(slot_position.shape, **where) < 0.3] = FREE
        position[-1, : n_queries // 3] = FREE
    lse = log_sum_exp(query, keys, position, slot_position, 2 * size**-0.5)
    return *(tensor.to(device) for tensor in (query, keys, lse, position, slot_position)), 2 * size**-0.5


def _chunks(
    query: Tensor, keys: Tensor, position: Tensor, slot_position: Tensor, scaling: float
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield some queries at a time: indices, logits (B, H, G, q, N) in float32, and the mask of visible keys."""
    n_heads, n_queries, columns = keys.shape[1], query.shape[2], keys.float().transpose(2, 3)
    size = max(1, CHUNK // max(1, query.shape[:2].numel() * keys.shape[2]))
    for start in range(0, n_queries, size):
        some = slice(start, start + size)
        rows = query[:, :, some].float().unflatten(1, (n_heads, -1)) * scaling  # (B, H, G, q, D)
        logits = (rows.flatten(2, 3) @ columns).unflatten(2, rows.shape[2:4])
        at = position[:, None, some, None]
        seen = (slot_position[:, :, None] <= at) & (at != FREE)
        yield some, logits, seen[:, :, None]


def _check(query: Tensor, keys: Tensor, lse: Tensor, position: Tensor, slot_position: Tensor) -> None:
    if query.ndim != 4 or keys.ndim != 4 or not keys.shape[1] or query.shape[1] % keys.shape[1]:
        raise ValueError(
            f"query has shape {tuple(query.shape)} and keys {tuple(keys.shape)}: expected (sequences, heads, queries, "
            "size) and (sequences, key-value heads, slots, size), a multiple of heads; check which tensor was passed"
        )
    n_sequences, n_heads, n_slots, size = keys.shape
    n_queries = query.shape[2]
    check_tensor("query", query, (n_sequences, query.shape[1], n_queries, size), FLOATS)
    check_slots("keys", keys, (n_sequences, n_heads, n_slots, size), (query.dtype,))
    check_tensor("lse", lse, (n_sequences, query.shape[1], n_queries), (torch.float32,))
    check_tensor("position", position, (n_sequences, n_queries), INTEGERS)
    check_slots("slot_position", slot_position, (n_sequences, n_heads, n_slots), INTEGERS)
    check_device(query=query, keys=keys, lse=lse, position=position, slot_position=slot_position)
