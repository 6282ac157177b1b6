"""Block-sparse attention of a whole prompt: each block of queries attends to a list of key blocks.

Each program holds BLOCK_Q queries of one block in registers and loops over the key blocks on its list. Softmax is
computed online with a running maximum and sum, as in FlashAttention (Dao and others, 2022,
https://arxiv.org/abs/2205.14135), so no program stores a whole row of attention weights. Prefill is compute-bound: a
full T x T matrix takes 2 * D * T^2 multiply-adds per head, and a skipped key block saves its products. Late queries
have the longest lists, so their programs start first, and the short ones fill the gaps at the end.

There are two kernels: the one below, for every GPU, head size and type, and the one in `hopper_prefill.py`, which is
faster where it can run.

Dimension key: H key-value heads, G query heads per key-value head, heads = H * G, T tokens in N blocks of S (the last
block may be shorter), M length of the longest list, D size of a head. The heads of all prompts are joined.
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
# For the tests: blocks smaller than a tile and grouped heads; blocks larger than a tile; whole tiles; a single token;
# blocks for Hopper GPUs. In all but the third the last block is shorter.
CASES = (
    {"shape": (2, 3, 37, 16), "block_size": 16},
    {"shape": (1, 1, 200, 24), "block_size": 80},
    {"shape": (1, 1, 128, 64), "block_size": 64},
    {"shape": (1, 2, 1, 8), "block_size": 16},
    {"shape": (1, 2, 300, 64), "block_size": 128},
)
MOST_SIZE = 256  # of a head: each program holds whole vectors


def reference(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    columns: Int[Tensor, "heads N M"],
    counts: Int[Tensor, "heads N"],
    scaling: float,
    block_size: int,
) -> Float[Tensor, "heads T D"]:
    """Compute the same in float32, one query block of one head at a time: softmax(scaling q Kᵀ + causal mask) V."""
    output, n_tokens = torch.empty_like(query), query.shape[1]
    offset = torch.arange(block_size, device=query.device)
    group = query.shape[0] // keys.shape[0]
    for head, block_counts in enumerate(counts.tolist()):
        for i, count in enumerate(block_counts):
            rows = slice(i * block_size, min((i + 1) * block_size, n_tokens))
            key_position = (columns[head, i, :count, None].long() * block_size + offset).flatten()
            key_position = key_position[key_position < n_tokens]
            query_position = torch.arange(rows.start, rows.stop, device=query.device)
            k, v = keys[head // group, key_position].float(), values[head // group, key_position].float()
            is_future = key_position > query_position[:, None]
            logits = (query[head, rows].float() * scaling @ k.T).masked_fill_(is_future, float("-inf"))
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
    """Count the bytes to move at least: queries, keys, values and lists are read once, the output is written once.

    Every index reads all keys, since each query block attends to its own key block.
    """
    list_bytes = int(counts.sum()) * columns.element_size()
    return 2 * query.nbytes + keys.nbytes + values.nbytes + list_bytes + counts.nbytes


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
    """Compute the output of BLOCK_Q queries of one block and head.

    Exponentials are powers of 2, which GPUs compute natively: `scaling` includes the factor log2(e).
    """
    TILES: tl.constexpr = (S + BLOCK_N - 1) // BLOCK_N  # per block of keys
    head = tl.program_id(1).to(tl.int64)
    parts = (S + BLOCK_Q - 1) // BLOCK_Q
    i = N - 1 - tl.program_id(0) // parts  # block of the queries; the last blocks start first
    m = i * S + tl.program_id(0) % parts * BLOCK_Q + tl.arange(0, BLOCK_Q)  # positions of the queries
    d = tl.arange(0, BLOCK_D)
    is_inside = ((m < T) & (m < (i + 1) * S))[:, None] & (d < D)[None, :]
    offset = (head * T + m)[:, None] * D + d[None, :]
    q = tl.load(query + offset, mask=is_inside, other=0.0)  # (BLOCK_Q, BLOCK_D)
    keys += head // G * T * D
    values += head // G * T * D
    columns += (head * N + i) * M
    # Invariant, over the keys so far with scaled logits s_n and values v_n: best = max s_n, sum_of_weights =
    # Σ 2^(s_n − best), weighted_sum = Σ 2^(s_n − best) v_n.
    best = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    sum_of_weights = tl.zeros([BLOCK_Q], tl.float32)
    weighted_sum = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    # A single loop over the tiles of all blocks, because the compiler prefetches loads only in the innermost loop.
    for step in range(tl.load(counts + head * N + i) * TILES):
        block = tl.load(columns + step // TILES)
        offset_in_block = step % TILES * BLOCK_N + tl.arange(0, BLOCK_N)
        n = block * S + offset_in_block  # positions of the keys
        is_key = n < T
        if S % BLOCK_N != 0:
            is_key &= offset_in_block < S
        k = tl.load(keys + n[None, :] * D + d[:, None], mask=is_key[None, :] & (d < D)[:, None], other=0.0)
        v = tl.load(values + n[:, None] * D + d[None, :], mask=is_key[:, None] & (d < D)[None, :], other=0.0)
        logit = product(q, k, UPCAST)  # (BLOCK_Q, BLOCK_N)
        # Earlier blocks are full and need no causal mask. The last one may be shorter, and only its queries read it.
        if S % BLOCK_N != 0:
            logit = tl.where(is_key[None, :] & (n[None, :] <= m[:, None]), logit, float("-inf"))
        elif block == i:
            logit = tl.where(n[None, :] <= m[:, None], logit, float("-inf"))
        # No block is later than the queries, so each query sees the first key of the first tile: higher is finite.
        higher = tl.maximum(best, tl.max(logit, 1) * scaling)
        weight = tl.exp2(logit * scaling - higher[:, None])
        fade = tl.exp2(best - higher)  # rescales earlier sums to the new best
        sum_of_weights = sum_of_weights * fade + tl.sum(weight, 1)
        weighted_sum = weighted_sum * fade[:, None] + product(weight.to(v.dtype), v, UPCAST)
        best = higher
    tl.store(output + offset, (weighted_sum / sum_of_weights[:, None]).to(output.dtype.element_ty), mask=is_inside)


def launch(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    columns: Int[Tensor, "heads N M"],
    counts: Int[Tensor, "heads N"],
    scaling: float,
    block_size: int,
) -> Float[Tensor, "heads T D"]:
    """Attend from each query to the key blocks on its block's list, up to the query's own position.

    Args:
        columns: the lists, int32: numbers of key blocks, each at most once, in any order except that the queries' own
            block comes last; no later block. The entries are not checked. `BlockIndex.lists()` returns them with
            `counts`.
        counts: the length of each list, int32; entries after it are padding and are not read.
        scaling: factor of the logits, such as 1 / sqrt(D).
        block_size: S, tokens per block.

    Raises:
        ValueError: shapes, types or devices that do not fit each other, or a scaling that is not positive.
    """
    _check(query, keys, values, columns, counts, scaling, block_size)
    if not runs_kernel(query):
        return reference(query, keys, values, columns, counts, scaling, block_size)
    run = hopper_prefill.attend if hopper_prefill.fits(query, keys, values, block_size) else attend
    return run(query, keys, values, columns, counts, scaling, block_size)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, columns: Tensor, counts: Tensor, scaling: float, block_size: int
) -> Tensor:
    """Run the kernel above."""
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
    """Return whether the kernels support these tensors: one type and device, values as long as keys, D ≤ MOST_SIZE."""
    same = query.dtype == keys.dtype == values.dtype and keys.shape == values.shape
    return same and query.device == keys.device == values.device and query.shape[2] <= MOST_SIZE and scaling > 0


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int, int, int], block_size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float, int]:
    """Draw random arguments for `launch` of a shape (H, G, T, D).

    Each list contains about half of the earlier blocks in random order, then the queries' own block.
    """
    options = {"generator": generator, "device": generator.device}
    n_heads, n_groups, n_tokens, size = shape
    query = torch.randn(n_heads * n_groups, n_tokens, size, **options).to(dtype)
    keys, values = (torch.randn(n_heads, n_tokens, size, **options).to(dtype) for _ in range(2))
    n_blocks = -(-n_tokens // block_size)
    rank = torch.rand(len(query), n_blocks, n_blocks, **options)  # lists are sorted by rank
    rank = rank.masked_fill(rank > 0.5, 2).masked_fill(~torch.ones_like(rank[0], dtype=torch.bool).tril(), 2)
    rank.diagonal(dim1=1, dim2=2).fill_(1)  # own block: after the earlier ones (≤ 0.5), before the others (2)
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
