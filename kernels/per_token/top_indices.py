"""The places of a row's highest scores, exactly as many as asked for, in order: the neurons that a token computes.

Dimension key: T tokens, F scores of each, K of them chosen.

torch.topk reads a row once for every two bits of a number. Here one program holds a row in its registers, and halves
the range of the K-th highest score until exactly K scores are in it or above it, at most once per bit of a number. The
result is what `course_lib.sparsity.ranking.keep_highest` keeps: of equal scores those of higher index. Since K is known
beforehand, the host does not wait for the GPU.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, overlap_of, runs_kernel, tl, triton
from jaxtyping import Float, Int
from torch import Tensor

MOST = 2**16  # scores of a row, which one program holds in its registers
A_THREAD = 32  # scores of a thread
# Bits of a float32 that a score of the type leaves at zero.
IDLE_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
# For the tests: an odd number; two rows, many ties; all; one of one; one of many.
CASES = (
    {"shape": (1, 61), "n_kept": 17},
    {"shape": (2, 200), "n_kept": 90, "n_values": 5},
    {"shape": (3, 64), "n_kept": 64},
    {"shape": (1, 1), "n_kept": 1},
    {"shape": (2, 300), "n_kept": 1, "n_values": 2},
)


def reference(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> Int[Tensor, "T K"]:
    """The same by a stable sort, after which the last are the highest, and of equals the later; NaN is the highest."""
    if nan is not None:
        nan.logical_or_(scores.isnan().any())
    highest = scores.sort(dim=1, stable=True).indices[:, scores.shape[1] - n_kept :]
    return highest.sort(dim=1).values.int()


def bytes_moved(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> int:
    """All scores, and the indices."""
    return scores.nbytes + 4 * n_kept * len(scores)


@jit(lengths=("K",))
def choose_kernel(
    scores, chosen, nan, K, F: tl.constexpr, IDLE: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The indices of one row."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row, f = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(scores + row * F + f, mask=f < F, other=0.0).to(tl.float32)
    if nan is not None:
        any_nan = tl.max((x != x).to(tl.int32), 0)
        tl.store(nan, 1, mask=any_nan > 0)
    # As integers of the same order: the bits of a negative number count downwards. -0 is 0, and NaN above all.
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    key = tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> IDLE
    lowest = -(1 << (31 - IDLE))  # no score has it
    key = tl.where(f < F, key, lowest)
    edge, n = tl.full([], lowest, tl.int32), F + tl.full([], 0, tl.int32)  # so many are no lower than the edge
    bit = tl.full([], 31 - IDLE, tl.int32)
    while (bit >= 0) & (n != K):
        higher = edge + (tl.full([], 1, tl.int32) << bit)
        left = tl.sum((key >= higher).to(tl.int32), 0)
        edge, n = tl.where(left >= K, higher, edge), tl.where(left >= K, left, n)
        bit -= 1
    keep = ((key >= edge) & (f < F)).to(tl.int32)
    if n > K:  # equals at the edge: the first of them leave
        tied = (key == edge).to(tl.int32)
        keep = tl.where((tied > 0) & (tl.cumsum(tied, 0) <= n - K), 0, keep)
    tl.store(chosen + row * K + tl.cumsum(keep, 0) - 1, f, mask=keep > 0)


def takes(scores: Tensor, n_kept: int) -> bool:
    """Whether the kernel runs on scores of this shape."""
    return scores.ndim == 2 and scores.is_contiguous() and 1 <= n_kept <= scores.shape[1] <= MOST


def launch(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> Int[Tensor, "T K"]:
    """Indices of the highest scores of each row, rising; of equal scores the higher index. NaN is above all numbers.

    Args:
        nan: an int32 that becomes 1 where a score is NaN, which the caller can read later.
    """
    check_tensor("scores", scores, tuple(scores.shape), FLOATS)
    if scores.ndim != 2 or not 1 <= n_kept <= scores.shape[1] <= MOST:
        raise ValueError(
            f"scores have shape {tuple(scores.shape)} and n_kept is {n_kept}: expected (tokens, scores), at most "
            f"{MOST} of them, and a number from 1 to that of the scores; for longer rows call reference()"
        )
    if scores.is_meta:
        raise ValueError("scores are on meta, which holds no numbers: expected one device; move them with .to(...)")
    if nan is not None:
        check_tensor("nan", nan, (1,), (torch.int32,))
        check_device(scores=scores, nan=nan)
    if not runs_kernel(scores) or not scores.numel():
        return reference(scores, n_kept, nan)
    n_rows, n_scores = scores.shape
    chosen = torch.empty((n_rows, n_kept), dtype=torch.int32, device=scores.device)
    block, overlap = triton.next_power_of_2(n_scores), overlap_of(scores.device)
    with torch.cuda.device_of(scores):  # triton launches on the current GPU, which may be another one
        choose_kernel[n_rows,](
            scores, chosen, nan, F=n_scores, K=n_kept, IDLE=IDLE_BITS[scores.dtype], OVERLAP=bool(overlap),
            BLOCK=block, num_warps=min(32, max(4, block // (32 * A_THREAD))), **overlap,
        )  # fmt: skip
    return chosen


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], n_kept: int, n_values: int = 0
) -> tuple[Tensor, int]:
    """Random arguments for `launch`, of a shape (T, F); of so many different values, where it says how many."""
    where = {"generator": generator, "device": generator.device}
    scores = torch.randn(*shape, **where)
    if n_values:
        scores = torch.randint(n_values, shape, **where) - n_values // 2 + 0.0
    return scores.to(device, dtype), n_kept
