"""Attention of a prompt's last queries by columns and diagonals of blocks, from which FlexPrefill chooses lines.

Dimension key: H key-value heads, G query heads to each, heads = H * G, T tokens in N blocks of S (the last block may be
shorter), D size of a head. The last S queries are the rows.

In torch, the weights of 32 heads and 32,768 tokens take 0.5 GB, and are written, normalised and read four times. Here a
program handles one block of keys and one head. For each row it writes the row's largest logit and four sums, but no
weights. A weight at distance δ from its query lies between two diagonals of blocks, ⌊δ / S⌋ and the next one, and is
split between them by its distances to them; a block of keys meets at most four diagonals. The sums are divided by the
rows' softmax denominators when all blocks are known.
"""

from __future__ import annotations

import math

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton
from course_lib.kernels.tiles import product
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

LOG2_E = math.log2(math.e)
DIAGONALS = 4  # that one block of keys meets: the queries' distances span two blocks, each between two diagonals
ROWS = 16  # of the last queries, whose blocks one program sums
MOST_ROWS = 128  # a program holds the logits of so many queries and keys
# For the tests: the last block ragged, with grouped heads, blocks no power of 2; whole blocks; as many queries as keys.
CASES = (
    {"shape": (2, 3, 37, 16), "block_size": 10},
    {"shape": (1, 2, 64, 24), "block_size": 16},
    {"shape": (1, 1, 8, 8), "block_size": 8},
)


def reference(
    query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, block_size: int
) -> tuple[Float[Tensor, "heads N"], Float[Tensor, "heads N"]]:
    """Compute the same in float32, with all weights in memory."""
    n_tokens, n_blocks = keys.shape[1], -(-keys.shape[1] // block_size)
    rows = (query[:, -block_size:].float() * scaling).unflatten(0, (keys.shape[0], -1))
    logits = (rows.flatten(1, 2) @ keys.float().transpose(1, 2)).view(len(query), block_size, n_tokens)
    key = torch.arange(n_tokens, device=query.device)
    distance = torch.arange(n_tokens - block_size, n_tokens, device=query.device)[:, None] - key
    weights = logits.masked_fill_(distance < 0, float("-inf")).softmax(dim=-1)
    columns = pad(weights.mean(dim=1), (0, n_blocks * block_size - n_tokens)).view(len(query), n_blocks, -1).sum(dim=2)
    # The part of a weight that counts for diagonal k is 1 - |δ / S - k|, if positive.
    nearer, part = distance.clamp(min=0) // block_size, distance.clamp(min=0) % block_size / block_size
    diagonals = columns.new_zeros(columns.shape)
    for diagonal, of_it in ((nearer, 1 - part), ((nearer + 1).clamp(max=n_blocks - 1), part)):
        diagonals.index_add_(1, diagonal.flatten(), (weights * of_it).flatten(1) / block_size)
    return columns, diagonals


def bytes_moved(
    query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, block_size: int
) -> int:
    """Count the bytes to move at least: last queries and all keys are read once, two sums per block written once."""
    rows = query.shape[0] * block_size * query.shape[2] * query.element_size()
    return rows + keys.nbytes + 2 * 4 * query.shape[0] * -(-query.shape[1] // block_size)


@jit(lengths=("T", "N"))
def line_kernel(
    query, keys, peaks, sums, scaling, T, N, UPCAST: tl.constexpr,
    G: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One block of keys and one query head. Exponentials are powers of 2: `scaling` holds the logarithm's factor."""
    j = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    r, d = tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    n = j * S + r
    at = T - S + r
    inside = (d < D)[None, :]
    q = tl.load(query + (head * T + at)[:, None] * D + d[None, :], mask=(r < S)[:, None] & inside, other=0.0)
    real = (n < T) & (r < S)
    k = tl.load(keys + (head // G * T + n)[:, None] * D + d[None, :], mask=real[:, None] & inside, other=0.0)
    logit = product(q, tl.trans(k), UPCAST) * scaling
    logit = tl.where(real[None, :] & (n[None, :] <= at[:, None]), logit, float("-inf"))
    peak = tl.max(logit, 1)
    weight = tl.exp2(logit - tl.where(peak == float("-inf"), 0.0, peak)[:, None])
    row = (head * N + j) * S
    tl.store(peaks + row + r, peak, mask=r < S)
    # How many blocks a query is from its key, less those from the last whole diagonal before all of this block's.
    blocks_apart = ((T % S) + r[:, None] - r[None, :]).to(tl.float32) / S + 1
    for t in tl.static_range(4):
        part = tl.maximum(1 - tl.abs(blocks_apart - t), 0.0)
        tl.store(sums + (row * 4 + t * S) + r, tl.sum(weight * part, 1), mask=r < S)


@jit(lengths=("N",))
def row_kernel(peaks, sums, best, total, N, S: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr):
    """Some rows of one head: their largest logit of all blocks, and their softmax denominator."""
    head = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (r < S)[None, :]
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = (head * N + n)[:, None] * S + r[None, :]
        peak = tl.load(peaks + at, mask=(n < N)[:, None] & inside, other=float("-inf"))
        highest = tl.maximum(highest, tl.max(peak, 0))
    denominator = tl.zeros([ROWS], tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        some = (n < N)[:, None] & inside
        peak = tl.load(peaks + (head * N + n)[:, None] * S + r[None, :], mask=some, other=float("-inf"))
        held = tl.zeros([BLOCK_N, ROWS], tl.float32)
        for t in tl.static_range(4):
            held += tl.load(sums + ((head * N + n) * 4 + t)[:, None] * S + r[None, :], mask=some, other=0.0)
        # Every real row has its own key.
        factor = tl.exp2(peak - tl.where(r < S, highest, 0.0)[None, :])
        denominator += tl.sum(held * factor, 0)
    tl.store(best + head * S + r, highest, mask=r < S)
    tl.store(total + head * S + r, denominator, mask=r < S)


@jit
def _mass(peaks, sums, best, total, row, t, r, some, S: tl.constexpr):
    """What parts t of some blocks hold, on average over the rows. `row`: of the block and head."""
    peak = tl.load(peaks + row[:, None] * S + r[None, :], mask=some, other=float("-inf"))
    held = tl.load(sums + (row * 4 + t)[:, None] * S + r[None, :], mask=some, other=0.0)
    return tl.sum(held * tl.exp2(peak - best[None, :]) / (total * S)[None, :], 1)


@jit(lengths=("N",))
def sum_kernel(
    peaks, sums, best, total, columns, diagonals, N, FIRST: tl.constexpr,
    S: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some columns and as many diagonals of one head. Block j and part t lie on diagonal N - 1 - FIRST - j + t: FIRST
    is 1, or 2 where the last block is ragged, since the last queries are not aligned with blocks then.
    """
    head = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, BLOCK)
    inside = (r < S)[None, :]
    highest = tl.load(best + head * S + r, mask=r < S, other=0.0)
    denominator = tl.load(total + head * S + r, mask=r < S, other=1.0)
    column = tl.zeros([BLOCK_N], tl.float32)
    diagonal = tl.zeros([BLOCK_N], tl.float32)
    for t in range(4):
        some = (n < N)[:, None] & inside
        column += _mass(peaks, sums, highest, denominator, head * N + n, t, r, some, S)
        for beyond in range(3):  # what lies beyond the last diagonal counts for it
            j = N - 1 - FIRST - n - beyond + t
            some = ((n < N) & (j >= 0) & (j < N) & ((beyond == 0) | (n == N - 1)))[:, None] & inside
            diagonal += _mass(peaks, sums, highest, denominator, head * N + j, t, r, some, S)
    tl.store(columns + head * N + n, column, mask=n < N)
    tl.store(diagonals + head * N + n, diagonal, mask=n < N)


def launch(
    query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, block_size: int
) -> tuple[Float[Tensor, "heads N"], Float[Tensor, "heads N"]]:
    """Compute the attention of the last `block_size` queries, averaged over them, in float32.

    Returns:
        The attention on each block of keys, and on each diagonal of blocks; diagonal 0 contains the queries' own block.
        A weight between two diagonals is split between both. Both outputs sum to 1 for each head.
    """
    _check(query, keys, block_size)
    if not runs_kernel(query):
        return reference(query, keys, scaling, block_size)
    n_heads, n_tokens, size = query.shape
    n_blocks = triton.cdiv(n_tokens, block_size)
    peaks = torch.empty(n_heads, n_blocks, block_size, dtype=torch.float32, device=query.device)
    sums = torch.empty(n_heads, n_blocks, DIAGONALS, block_size, dtype=torch.float32, device=query.device)
    best, total = torch.empty(2, n_heads, block_size, dtype=torch.float32, device=query.device)
    columns, diagonals = torch.empty(2, n_heads, n_blocks, dtype=torch.float32, device=query.device)
    with torch.cuda.device_of(query):  # triton launches on the current GPU, which may be another one
        line_kernel[(n_blocks, n_heads)](
            query, keys, peaks, sums, scaling * LOG2_E, T=n_tokens, N=n_blocks, UPCAST=INTERPRETED,
            G=n_heads // keys.shape[0], S=block_size, D=size, BLOCK=max(16, triton.next_power_of_2(block_size)),
            BLOCK_D=max(16, triton.next_power_of_2(size)), num_warps=8,
        )  # fmt: skip
        rows = max(16, triton.next_power_of_2(block_size))
        row_kernel[(triton.cdiv(rows, ROWS), n_heads)](
            peaks, sums, best, total, N=n_blocks, S=block_size, BLOCK_N=32, ROWS=ROWS, num_warps=4
        )
        sum_kernel[(triton.cdiv(n_blocks, 16), n_heads)](
            peaks, sums, best, total, columns, diagonals, N=n_blocks, FIRST=1 + (n_tokens % block_size != 0),
            S=block_size, BLOCK_N=16, BLOCK=rows, num_warps=4,
        )  # fmt: skip
    return columns, diagonals


def takes(query: Tensor, keys: Tensor, block_size: int) -> bool:
    """Return whether one program has room for such blocks, and the text has at least one block."""
    shapes = query.shape[1] >= block_size <= MOST_ROWS and query.shape[2] <= 256
    return shapes and query.dtype == keys.dtype and query.device == keys.device


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int, int, int], block_size: int
) -> tuple[Tensor, Tensor, float, int]:
    """Draw random arguments for `launch`, of a shape (H, G, T, D)."""
    where = {"generator": generator, "device": generator.device}
    n_heads, n_groups, n_tokens, size = shape
    query = torch.randn(n_heads * n_groups, n_tokens, size, **where).to(dtype).to(device)
    return query, torch.randn(n_heads, n_tokens, size, **where).to(dtype).to(device), 2 * size**-0.5, block_size


def _check(query: Tensor, keys: Tensor, block_size: int) -> None:
    if query.ndim != 3 or keys.ndim != 3 or not keys.shape[0] or query.shape[0] % keys.shape[0]:
        raise ValueError(
            f"query has shape {tuple(query.shape)} and keys {tuple(keys.shape)}: expected (heads, tokens, size) and "
            "(key-value heads, tokens, size), a multiple of heads; join sequences and heads by .flatten(0, 1)"
        )
    if not 1 <= block_size <= min(MOST_ROWS, query.shape[1]):
        raise ValueError(
            f"block_size is {block_size}: expected 1 to {MOST_ROWS}, and no more than the {query.shape[1]} tokens"
        )
    n_heads, n_tokens, size = query.shape
    check_tensor("query", query, (n_heads, n_tokens, size), FLOATS)
    check_tensor("keys", keys, (keys.shape[0], n_tokens, size), (query.dtype,))
    check_device(query=query, keys=keys)
