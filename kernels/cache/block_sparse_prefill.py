"""Attention of a whole prompt in which each block of queries reads some blocks of keys: what sparse prefill computes.

Dimension key: H key-value heads, G query heads to each, heads = H * G, T tokens in N blocks of S, the last ragged, M
the longest list of blocks, D size of a head. Several prompts of one length are so many times more heads.

A program owns some queries of one block, in registers, and goes through that block's list; softmax is computed online,
with a running maximum and sum, so that no row of weights is ever whole. A dense prompt of T tokens is bound by
arithmetic, 2 * D * T^2 multiply-adds a head, and so is a sparse one: what is left out is left out of the products. The
lists are long for late queries, so these begin first, and the short ones fill the gaps.

Two kernels compute it: the one below, for every GPU, size and type, and that of `hopper_prefill.py`, which is faster
where it can run.
"""

from __future__ import annotations

import math

import torch
from course_lib.kernels.cache import hopper_prefill
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import product
from jaxtyping import Float, Int
from torch import Tensor

LOG2_E = math.log2(math.e)
# For the tests: blocks smaller than a tile, ragged, with grouped heads; blocks of more than a tile, ragged; whole
# tiles; a single token; blocks for Hopper GPUs, ragged.
CASES = (
    {"shape": (2, 3, 37, 16), "block_size": 16},
    {"shape": (1, 1, 200, 24), "block_size": 80},
    {"shape": (1, 1, 128, 64), "block_size": 64},
    {"shape": (1, 2, 1, 8), "block_size": 16},
    {"shape": (1, 2, 300, 64), "block_size": 128},
)
MOST_SIZE = 256  # of a head: a program holds all of it


def reference(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    columns: Int[Tensor, "heads N M"],
    counts: Int[Tensor, "heads N"],
    scaling: float,
    block_size: int,
) -> Float[Tensor, "heads T D"]:
    """In float32, one block of queries of one head at a time."""
    output, n_tokens = torch.empty_like(query), query.shape[1]
    within = torch.arange(block_size, device=query.device)
    group = query.shape[0] // keys.shape[0]
    for head, of_blocks in enumerate(counts.tolist()):
        for i, count in enumerate(of_blocks):
            rows = slice(i * block_size, min((i + 1) * block_size, n_tokens))
            read = (columns[head, i, :count, None].long() * block_size + within).flatten()
            read = read[read < n_tokens]
            at = torch.arange(rows.start, rows.stop, device=query.device)
            k, v = keys[head // group, read].float(), values[head // group, read].float()
            logits = (query[head, rows].float() * scaling @ k.T).masked_fill_(read > at[:, None], float("-inf"))
            output[head, rows] = (logits.softmax(dim=-1) @ v).to(query.dtype)
    return output


def bytes_moved(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    columns: Int[Tensor, "heads N M"],
    counts: Int[Tensor, "heads N"],
    scaling: float,
    block_size: int,
) -> int:
    """Queries, keys and values read once, which every index does, since each block reads itself; of the lists what is
    on them; the output written once."""
    listed = int(counts.sum()) * columns.element_size()
    return 2 * query.nbytes + keys.nbytes + values.nbytes + listed + counts.nbytes


@tuned(
    ["T_CLASS", "S", "G", "D"],
    {"BLOCK_Q": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2},
    {"BLOCK_Q": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
    {"BLOCK_Q": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    {"BLOCK_Q": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2},
    float32=({"BLOCK_Q": 32, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2},),
)
@jit(lengths=("T", "T_CLASS", "N", "M"))
def prefill_kernel(
    query, keys, values, columns, counts, output, scaling, T, T_CLASS, N, M, UPCAST: tl.constexpr,
    G: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_Q queries of one block and head. Exponentials are powers of 2: `scaling` holds the logarithm's factor."""
    TILES: tl.constexpr = (S + BLOCK_N - 1) // BLOCK_N  # of a block of keys
    head = tl.program_id(1).to(tl.int64)
    parts = (S + BLOCK_Q - 1) // BLOCK_Q
    i = N - 1 - tl.program_id(0) // parts
    at = i * S + tl.program_id(0) % parts * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, BLOCK_D)
    mine = ((at < T) & (at < (i + 1) * S))[:, None] & (d < D)[None, :]
    where = (head * T + at)[:, None] * D + d[None, :]
    q = tl.load(query + where, mask=mine, other=0.0)
    keys += head // G * T * D
    values += head // G * T * D
    columns += (head * N + i) * M
    best = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    sum_of_weights = tl.zeros([BLOCK_Q], tl.float32)
    read = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    # One loop over the tiles of all blocks: loads run ahead in the innermost loop alone.
    for step in range(tl.load(counts + head * N + i) * TILES):
        block = tl.load(columns + step // TILES)
        within = step % TILES * BLOCK_N + tl.arange(0, BLOCK_N)
        n = block * S + within
        real = n < T
        if S % BLOCK_N != 0:
            real &= within < S
        k = tl.load(keys + n[None, :] * D + d[:, None], mask=real[None, :] & (d < D)[:, None], other=0.0)
        v = tl.load(values + n[:, None] * D + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0)
        logit = product(q, k, UPCAST)
        # Of other blocks each query sees all keys: only the last block is ragged, which only its own queries read.
        if S % BLOCK_N != 0:
            logit = tl.where(real[None, :] & (n[None, :] <= at[:, None]), logit, float("-inf"))
        elif block == i:
            logit = tl.where(n[None, :] <= at[:, None], logit, float("-inf"))
        # No block is later than the queries, so each of them sees the first key of the first tile: never −inf.
        higher = tl.maximum(best, tl.max(logit, 1) * scaling)
        weight = tl.exp2(logit * scaling - higher[:, None])
        fade = tl.exp2(best - higher)
        sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
        read = read * fade[:, None] + product(weight.to(v.dtype), v, UPCAST)
        best = higher
    tl.store(output + where, (read / sum_of_weights[:, None]).to(output.dtype.element_ty), mask=mine)


def launch(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    columns: Int[Tensor, "heads N M"],
    counts: Int[Tensor, "heads N"],
    scaling: float,
    block_size: int,
) -> Float[Tensor, "heads T D"]:
    """What each query reads of the blocks on its list, up to its own key.

    Args:
        columns: the lists, int32: block numbers, each at most once, none later than the queries' own, which is the
            last. `BlockIndex.lists()` makes these and the next. What is on a list is not checked.
        counts: how many numbers of each list are meant; what stands behind them is not read.
    """
    _check(query, keys, values, columns, counts, scaling, block_size)
    if not runs_kernel(query):
        return reference(query, keys, values, columns, counts, scaling, block_size)
    run = hopper_prefill.attend if hopper_prefill.fits(query, keys, values, block_size) else attend
    return run(query, keys, values, columns, counts, scaling, block_size)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, columns: Tensor, counts: Tensor, scaling: float, block_size: int
) -> Tensor:
    """By the kernel above."""
    n_heads, n_tokens, size = query.shape
    n_blocks = triton.cdiv(n_tokens, block_size)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        prefill_kernel[lambda meta: (n_blocks * triton.cdiv(block_size, meta["BLOCK_Q"]), n_heads)](
            query, keys, values, columns, counts, output, scaling * LOG2_E, T=n_tokens,
            T_CLASS=triton.next_power_of_2(n_tokens), N=n_blocks, M=columns.shape[2], UPCAST=INTERPRETED,
            G=n_heads // keys.shape[0], S=block_size, D=size, BLOCK_D=max(16, triton.next_power_of_2(size)),
        )  # fmt: skip
    return output


def takes(query: Tensor, keys: Tensor, values: Tensor, block_size: int, scaling: float) -> bool:
    """Whether the kernels can read these heads: values as long as keys, all of one type."""
    same = query.dtype == keys.dtype == values.dtype and keys.shape == values.shape
    return same and query.device == keys.device == values.device and query.shape[2] <= MOST_SIZE and scaling > 0


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int, int, int], block_size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float, int]:
    """Random arguments for `launch`, of a shape (H, G, T, D): half of the earlier blocks on each list, in any order
    before their own."""
    where = {"generator": generator, "device": generator.device}
    n_heads, n_groups, n_tokens, size = shape
    query = torch.randn(n_heads * n_groups, n_tokens, size, **where).to(dtype)
    keys, values = (torch.randn(n_heads, n_tokens, size, **where).to(dtype) for _ in range(2))
    n_blocks = -(-n_tokens // block_size)
    rank = torch.rand(len(query), n_blocks, n_blocks, **where)  # the lowest come first
    rank = rank.masked_fill(rank > 0.5, 2).masked_fill(~torch.ones_like(rank[0], dtype=torch.bool).tril(), 2)
    rank.diagonal(dim1=1, dim2=2).fill_(1)
    counts = (rank < 1.5).sum(dim=2).int()
    columns = rank.argsort(dim=2)[:, :, : int(counts.max())].int().contiguous()
    tensors = (tensor.to(device) for tensor in (query, keys, values, columns, counts))
    return *tensors, 2 * size**-0.5, block_size


def _check(
    query: Tensor, keys: Tensor, values: Tensor, columns: Tensor, counts: Tensor, scaling: float, block_size: int
) -> None:
    if query.ndim != 3 or keys.ndim != 3 or not keys.shape[0] or query.shape[0] % keys.shape[0]:
        raise ValueError(
            f"query has shape {tuple(query.shape)} and keys {tuple(keys.shape)}: expected (heads, tokens, size) and "
            "(key-value heads, tokens, size), a multiple of heads; join sequences and heads by .flatten(0, 1)"
        )
    if not scaling > 0:
        raise ValueError(f"scaling is {scaling}: expected a positive number, such as 1 / sqrt(size of a head)")
    if block_size < 1 or columns.ndim != 3:
        raise ValueError(
            f"block_size is {block_size} and columns has shape {tuple(columns.shape)}: expected at least 1 and (heads, "
            "blocks, longest list); take the lists of a BlockIndex, and its block_size"
        )
    (n_heads, n_tokens, size), n_blocks = query.shape, -(-query.shape[1] // block_size)
    check_tensor("query", query, (n_heads, n_tokens, size), FLOATS)
    check_tensor("keys", keys, (keys.shape[0], n_tokens, size), (query.dtype,))
    check_tensor("values", values, tuple(keys.shape), (query.dtype,))
    check_tensor("columns", columns, (n_heads, n_blocks, columns.shape[2]), (torch.int32,))
    check_tensor("counts", counts, (n_heads, n_blocks), (torch.int32,))
    check_device(query=query, keys=keys, values=values, columns=columns, counts=counts)
