"""The small steps of sparse prefill's index on a GPU, each in one launch: FlexPrefill's decision, and lists of blocks.

Dimension key: H key-value heads, G query heads to each, heads = H * G, T tokens in N blocks of S, D size of a head.

In torch these are a hundred operations on a few thousand numbers. Each one takes 5 to 10 us on the host and less on the
GPU. So an index took 4 ms on an H200, both for 8,192 and for 32,768 tokens, of which 0.3 of the attention is read.
"""

from __future__ import annotations

import torch
from course_lib.kernels.runtime import jit, power_of_two, runs_kernel, tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["aware_heads", "block_lists", "blocks_read", "runs_kernel", "takes"]

MOST_BLOCKS = 2048  # a program holds a number for each
MOST_SIZE = 256  # of a block
D_STEP = 16  # numbers of each mean key at a time


def takes(*tensors: Tensor, block_size: int = 1) -> bool:
    """Return whether the tensors (queries and keys, or only an index) match, and the blocks fit into a program."""
    first = tensors[0]
    same = all(each.dtype == first.dtype and each.device == first.device for each in tensors)
    return same and block_size <= first.shape[1] <= MOST_BLOCKS * block_size and block_size <= MOST_SIZE


@jit(lengths=("T", "N"))
def aware_kernel(
    query, key_means, columns, aware, scaling, tau, T, N,
    G: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_S: tl.constexpr, D_STEP: tl.constexpr,
):  # fmt: skip
    """One head."""
    head = tl.program_id(0).to(tl.int64)
    n, r = tl.arange(0, BLOCK), tl.arange(0, BLOCK_S)
    logit = tl.zeros([BLOCK], tl.float32)
    for start in range(0, D, D_STEP):
        d = start + tl.arange(0, D_STEP)
        last = query + (head * T + T - S + r)[:, None] * D + d[None, :]
        q = tl.load(last, mask=(r < S)[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
        mean = tl.sum(q, 0) / S * scaling
        some = key_means + (head // G * N + n)[:, None] * D + d[None, :]
        k = tl.load(some, mask=(n < N)[:, None] & (d < D)[None, :], other=0.0)
        logit += tl.sum(k * mean[None, :], 1)
    logit = tl.where(n < N, logit, float("-inf"))
    weight = tl.exp(logit - tl.max(logit, 0))
    p = (weight / tl.sum(weight, 0)).to(tl.float64)
    q = tl.load(columns + head * N + n, mask=n < N, other=0.0).to(tl.float64)
    both = p + q
    # 0 log 0 = 0, and NaN stays NaN.
    terms = tl.where(p == 0, 0.0, p * tl.log(tl.where(p == 0, 1.0, p)))
    terms += tl.where(q == 0, 0.0, q * tl.log(tl.where(q == 0, 1.0, q)))
    terms -= tl.where(both == 0, 0.0, both * (tl.log(tl.where(both == 0, 1.0, both)) - 0.6931471805599453))
    divergence = tl.sqrt(tl.maximum(tl.sum(terms, 0) / 2, 0.0))
    tl.store(aware + head, (divergence < tau).to(tl.uint8))


def aware_heads(
    query: Float[Tensor, "heads T D"],
    key_means: Float[Tensor, "H N D"],
    columns: Float[Tensor, "heads N"],
    scaling: float,
    tau: float,
    block_size: int,
) -> Bool[Tensor, "heads"]:
    """Return the heads whose attention by block means is close to that of the last queries: √JSD < τ."""
    (n_heads, n_tokens, size), n = query.shape, key_means.shape[1]
    aware = torch.empty(n_heads, dtype=torch.uint8, device=query.device)
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        aware_kernel[(n_heads,)](
            query, key_means, columns, aware, scaling, tau, T=n_tokens, N=n, G=n_heads // key_means.shape[0],
            S=block_size, D=size, BLOCK=max(16, power_of_two(n)), BLOCK_S=max(16, power_of_two(block_size)),
            D_STEP=D_STEP, num_warps=8,
        )  # fmt: skip
    return aware.view(torch.bool)


@jit(lengths=("H", "N"))
def read_kernel(lines, budget, blocks, aware, reads, H, N, BLOCK: tl.constexpr):
    """One block of queries of one head. `lines` and `budget` hold columns of all heads, then diagonals."""
    i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.arange(0, BLOCK)
    causal = n <= i
    is_aware = tl.load(aware + head) != 0
    kept = tl.where(is_aware, budget, lines) + head * N
    column = tl.load(kept + n, mask=causal, other=0)
    diagonal = tl.load(kept + H.to(tl.int64) * N + i - n, mask=causal, other=0)
    row = (head * N + i) * N
    chosen = tl.load(blocks + row + n, mask=causal & is_aware, other=0)
    tl.store(reads + row + n, ((column | diagonal | chosen) != 0).to(tl.uint8), mask=n < N)


def blocks_read(
    lines: Bool[Tensor, "2 heads N"],
    budget: Bool[Tensor, "2 heads N"],
    blocks: Bool[Tensor, "heads N N"],
    aware: Bool[Tensor, "heads"],
) -> Bool[Tensor, "heads N N"]:
    """Return the causal blocks to read: for query-aware heads `blocks` and the lines of `budget`, for others `lines`.

    Args:
        lines, budget: contiguous masks of the kept columns and diagonals of blocks.
    """
    reads = torch.empty(blocks.shape, dtype=torch.uint8, device=blocks.device)
    n_heads, n = blocks.shape[:2]
    arguments = (each.view(torch.uint8) for each in (lines, budget, blocks, aware))
    with torch.cuda.device_of(blocks):
        read_kernel[(n, n_heads)](
            *arguments, reads, H=n_heads, N=n, BLOCK=max(16, power_of_two(n)), num_warps=1 if n <= 512 else 4
        )
    return reads.view(torch.bool)


@jit(lengths=("N",))
def list_kernel(reads, columns, counts, N, BLOCK: tl.constexpr):
    """One block of queries of one head."""
    row = tl.program_id(1).to(tl.int64) * N + tl.program_id(0)
    n = tl.arange(0, BLOCK)
    read = (tl.load(reads + row * N + n, mask=n < N, other=0) != 0).to(tl.int32)
    place = tl.cumsum(read, 0)
    tl.store(columns + row * N + place - 1, n, mask=read != 0)
    tl.store(counts + row, tl.sum(read, 0))


def block_lists(reads: Bool[Tensor, "heads N N"]) -> tuple[Int[Tensor, "heads N N"], Int[Tensor, "heads N"]]:
    """Return the blocks that each block of queries reads, in ascending order, padded with 0, and their number."""
    n_heads, n = reads.shape[:2]
    columns = torch.zeros(reads.shape, dtype=torch.int32, device=reads.device)
    counts = torch.empty(n_heads, n, dtype=torch.int32, device=reads.device)
    with torch.cuda.device_of(reads):
        list_kernel[(n, n_heads)](
            reads.contiguous().view(torch.uint8), columns, counts, N=n, BLOCK=max(16, power_of_two(n)),
            num_warps=1 if n <= 512 else 4,
        )  # fmt: skip
    return columns, counts
