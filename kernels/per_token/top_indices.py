"""The indices of a row's K highest scores, exactly K and in ascending order: the neurons that a token computes.

Dimension key: T tokens, F scores of each, K of them chosen.

torch.topk reads a row once for every two bits of a number, and takes 55 µs on an H200 for 14336 scores in bfloat16.
Here a program holds a row in its registers and narrows the range of the K-th highest score. It starts with the value
expected for normal numbers, so those take 3 to 13 passes; pure bisection takes one pass for each of 16 or 32 bits, and
for any numbers it takes only a few more. All programs of a row do the same search, because the search waits for its
threads and more of them would not help; then each writes the indices of one slice. The chosen entries are those of
`course_lib.sparsity.ranking.keep_highest`: in ties, higher indices are kept. K is known in advance, so the host does
not wait for the GPU.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, overlap_of, runs_kernel, tl, triton
from jaxtyping import Float, Int
from torch import Tensor

MOST = 2**16  # scores of a row, which one program holds in its registers
A_THREAD = 64  # scores of a thread
SLICE = 1024  # scores of a row whose indices a program writes
# Bits of a float32 that a score of the type leaves at zero.
IDLE_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
# For the tests: an odd number; two rows, many ties; all; one of one; one of many; ties over three
# slices.
CASES = (
    {"shape": (1, 61), "n_kept": 17},
    {"shape": (2, 200), "n_kept": 90, "n_values": 5},
    {"shape": (3, 64), "n_kept": 64},
    {"shape": (1, 1), "n_kept": 1},
    {"shape": (2, 300), "n_kept": 1, "n_values": 2},
    {"shape": (2, 2100), "n_kept": 700, "n_values": 40},
)


def reference(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> Int[Tensor, "T K"]:
    """Compute the same by a stable sort, whose last entries are the highest, in ties the later; NaN is the highest."""
    if nan is not None:
        nan.logical_or_(scores.isnan().any())
    highest = scores.sort(dim=1, stable=True).indices[:, scores.shape[1] - n_kept :]
    return highest.sort(dim=1).values.int()


def bytes_moved(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> int:
    """Count all scores and the indices."""
    return scores.nbytes + 4 * n_kept * len(scores)


@jit
def key_of(x, IDLE: tl.constexpr):
    """An integer of the same order: the bits of a negative number count downwards. -0 is 0, and NaN above all."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> IDLE


@jit(lengths=("K",))
def choose_kernel(
    scores, chosen, nan, deviations, K, F: tl.constexpr, IDLE: tl.constexpr, OVERLAP: tl.constexpr,
    BLOCK: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """The indices of one row that lie in one slice of it."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row, start, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * SLICE, tl.arange(0, BLOCK)
    x = tl.load(scores + row * F + f, mask=f < F, other=0.0).to(tl.float32)
    if nan is not None:
        any_nan = tl.max((x != x).to(tl.int32), 0)
        tl.store(nan, 1, mask=any_nan > 0)
    lowest = -(1 << (31 - IDLE))  # no score has it
    key = tl.where(f < F, key_of(x, IDLE), lowest)
    # `n` scores, K or more, are no lower than the edge, and fewer than K are above the top.
    edge, top = tl.full([], lowest, tl.int32), tl.full([], 0x7FFFFFFF >> IDLE, tl.int32)
    n = F + tl.full([], 0, tl.int32)
    mean = tl.sum(x, 0) / F
    guess = mean + deviations * tl.sqrt(tl.maximum(tl.sum(x * x, 0) / F - mean * mean, 0.0))
    middle = tl.maximum(key_of(guess, IDLE), edge + 1)
    # From the guess by growing steps, until the K-th highest is between two of them; from then on by halves.
    step, rising = tl.full([], 1 << (16 - IDLE), tl.int32), tl.full([], -1, tl.int32)
    while (edge < top) & (n != K):
        left = tl.sum((key >= middle).to(tl.int32), 0)
        enough = (left >= K).to(tl.int32)
        rising = tl.where(rising < 0, enough, rising)
        step = tl.where(enough == rising, tl.minimum(step, 1 << 28) * 4, 1 << 30)
        edge, n, top = (
            tl.where(enough > 0, middle, edge), tl.where(enough > 0, left, n), tl.where(enough > 0, top, middle - 1)
        )  # fmt: skip
        reach = tl.minimum(step, tl.maximum((top >> 1) - (edge >> 1), 1))
        middle = tl.where(rising > 0, edge + reach, top + 1 - reach)
    # Of equals at the edge, the first leave, so that K stay.
    leaving, before = n - K, f < start
    tied_before = tl.sum(((key == edge) & before).to(tl.int32), 0)
    place = tl.sum(((key > edge) & before).to(tl.int32), 0) + tl.maximum(tied_before - leaving, 0)
    f = start + tl.arange(0, SLICE)
    key = key_of(tl.load(scores + row * F + f, mask=f < F, other=0.0).to(tl.float32), IDLE)
    tied = ((key == edge) & (f < F)).to(tl.int32)
    above = ((key > edge) & (f < F)).to(tl.int32)
    keep = tl.where((tied > 0) & (tied_before + tl.cumsum(tied, 0) > leaving), 1, above)
    tl.store(chosen + row * K + place + tl.cumsum(keep, 0) - 1, f, mask=keep > 0)


def takes(scores: Tensor, n_kept: int) -> bool:
    """Return whether the kernel runs on scores of this shape."""
    return scores.ndim == 2 and scores.is_contiguous() and 1 <= n_kept <= scores.shape[1] <= MOST


def launch(scores: Float[Tensor, "T F"], n_kept: int, nan: Int[Tensor, "1"] | None = None) -> Int[Tensor, "T K"]:
    """Return the indices of each row's highest scores, ascending; in ties the higher index. NaN is above all numbers.

    Args:
        nan: an int32 that becomes 1 if a score is NaN; the caller can read it later.
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
        choose_kernel[n_rows, triton.cdiv(n_scores, SLICE)](
            scores, chosen, nan, _deviations(n_kept, n_scores), F=n_scores, K=n_kept, IDLE=IDLE_BITS[scores.dtype],
            OVERLAP=bool(overlap), BLOCK=block, SLICE=min(SLICE, block),
            num_warps=min(32, max(4, block // (32 * A_THREAD))), **overlap,
        )  # fmt: skip
    return chosen


@lru_cache
def _deviations(n_kept: int, n_scores: int) -> float:
    """Return how many standard deviations above the mean the K-th highest of normal numbers is."""
    return NormalDist().inv_cdf(1 - (n_kept - 0.5) / n_scores)


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], n_kept: int, n_values: int = 0
) -> tuple[Tensor, int]:
    """Draw random arguments for `launch`, of a shape (T, F); `n_values` is the number of different values."""
    where = {"generator": generator, "device": generator.device}
    scores = torch.randn(*shape, **where)
    if n_values:
        scores = torch.randint(n_values, shape, **where) - n_values // 2 + 0.0
    return scores.to(device, dtype), n_kept
