"""Sun, Liu, Bair, Kolter 2023, "A Simple and Effective Pruning Approach for Large Language Models" (Wanda),
https://arxiv.org/abs/2306.11695: score and choice within each output row in one pass over the weight.

Dimension key: O outputs (rows), I inputs (columns).

A row of scores stays in registers. The threshold between pruned and kept entries is found bit by bit: at most 32 counts
of the scores below a trial value, while sorting would move every score many times. Exactly `n_leaving` entries of each
row are pruned, the lowest first, and in ties the lower index first, as with a stable sort.

Counting is the limit, not memory. A count is a comparison and an addition per score, three cycles of a quarter of a
multiprocessor for 32 scores, and rows of 4,096 random scores need 20 counts (of 14,336: 22). For 14,336 x 4,096 weights
that is 107 us at the 1.98 GHz of an H200, whose memory moves them in 55.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton
from course_lib.kernels.weights.wanda_mask import HAS_NAN, WRITES, Pruned
from jaxtyping import Float
from torch import Tensor

from course_lib.sparsity.ranking import check_score, keep_highest

WIDEST = 2**15  # columns: 32 scores in each of 1024 threads
SCORES = 1024  # of a warp: 32 in each thread
# For the tests: ties at the threshold and elsewhere, full and partial blocks, one entry that is pruned or kept.
CASES = (
    {"shape": (5, 300), "n_leaving": 150},
    {"shape": (3, 64), "n_leaving": 1},
    {"shape": (2, 130), "n_leaving": 129},
    {"shape": (6, 33), "n_leaving": 20, "is_score": True},
)


def reference(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n_leaving: int, write: str = "both"
) -> Pruned:
    """Compute score, rank and mask in float32. Without norms, the weight is the score."""
    score = weight.float() if norm is None else weight.abs().float() * norm
    check_score(score)
    keep = keep_highest(score, n_leaving)
    return Pruned(None if write == "keep" else weight.masked_fill(~keep, 0), None if write == "weight" else keep)


def bytes_moved(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n_leaving: int, write: str = "both"
) -> int:
    """Count the bytes to move at least: weight and norms are read once, the requested outputs are written once.

    A mask has one byte per entry.
    """
    width = weight.element_size()
    written = {"weight": width, "keep": 1, "both": width + 1}[write]
    return weight.numel() * (width + written) + (0 if norm is None else norm.nbytes)


@jit(lengths=("n_leaving",))
def row_kernel(
    weight, norm, pruned, keep, has_nan, n_leaving, I: tl.constexpr, BLOCK_I: tl.constexpr
):  # fmt: skip
    """One row. Counted in float32: a GPU compares into 1.0 and 0.0 in one instruction, and adds those sooner.

    `trial`, `edge` and `step` are places in the order of all floats: 0 for zero, 1 for the least above it, -1 for -0.
    """
    INFINITE: tl.constexpr = 0x7F800000  # its place; those above it are no numbers
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK_I)
    inside = column < I
    score = tl.load(weight + row * I + column, mask=inside, other=0.0).to(tl.float32)
    if norm is not None:
        score = tl.abs(score) * tl.load(norm + column, mask=inside, other=0.0)
    nan = tl.max((score != score).to(tl.int32), 0)
    if nan > 0:
        tl.store(has_nan, 1)
    score = tl.where(inside, score, float("inf"))  # stays: the last of all, even of equals
    # The n-th smallest is the largest number that fewer than n others lie below. Its sign first, then bit by bit, until
    # a number is found that exactly n lie below.
    n_below = tl.sum(tl.where(score < 0.0, 1.0, 0.0), 0).to(tl.int32)
    trial = n_below * 0
    edge = tl.where(n_below < n_leaving, 0, -0x80000000).to(tl.int32)
    step = trial + 0x40000000
    while (step > 0) & (n_below != n_leaving):
        trial = edge + step
        number = (trial ^ ((trial >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        n_below = tl.sum(tl.where(score < number, 1.0, 0.0), 0).to(tl.int32)
        n_below = tl.where(trial > INFINITE, BLOCK_I, n_below)
        edge = tl.where(n_below < n_leaving, trial, edge)
        step = step >> 1
    edge = tl.where(n_below == n_leaving, trial, edge)
    edge = (edge ^ ((edge >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    tied = (score == edge).to(tl.int32)
    # Of those that tie, so many leave:
    missing = n_leaving - tl.sum(tl.where(score < edge, 1.0, 0.0), 0).to(tl.int32)
    last = n_below * 0 + BLOCK_I
    if tl.sum(tied, 0) > missing:
        # The column of the last one that leaves: the largest that fewer than `missing` lie before.
        last = n_below * 0
        step = n_below * 0 + BLOCK_I // 2
        while step > 0:
            n_before = tl.sum(tl.where(column < last + step, tied, 0), 0)
            last = tl.where(n_before < missing, last + step, last)
            step = step >> 1
        last = tl.where(missing > 0, last, -1)
    stays = (score > edge) | ((tied > 0) & (column > last))
    if pruned is not None:
        w = tl.load(weight + row * I + column, mask=inside, other=0.0)  # again, rather than held in registers
        tl.store(pruned + row * I + column, tl.where(stays, w, 0.0), mask=inside)
    if keep is not None:
        tl.store(keep + row * I + column, stays.to(tl.uint8), mask=inside)


def takes(weight: Tensor, n_leaving: int) -> bool:
    """Return whether the kernel can prune rows of this matrix, and there is anything to prune."""
    return weight.ndim == 2 and 0 < n_leaving < weight.shape[1] <= WIDEST and weight.is_contiguous()


def launch(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n_leaving: int, write: str = "both"
) -> Pruned:
    """Return the weight without the `n_leaving` lowest scores |w_ij| * norm_j of each row, its keep mask, or both.

    Without norms, the weight is the score of any method, negative numbers included.
    """
    _check(weight, norm, n_leaving, write)
    if not runs_kernel(weight):
        return reference(weight, norm, n_leaving, write)
    pruned, has_nan = enqueue(weight, norm, n_leaving, write)
    if has_nan.item():  # the one wait for the GPU
        raise ValueError(HAS_NAN)
    return pruned


def enqueue(weight: Tensor, norm: Tensor | None, n_leaving: int, write: str) -> tuple[Pruned, Tensor]:
    """Start the kernel and return without waiting: the results, and a flag that says whether a score was NaN."""
    pruned = None if write == "keep" else torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    keep = None if write == "weight" else torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    has_nan = torch.zeros(1, dtype=torch.int32, device=weight.device)
    n_rows, n_columns = weight.shape
    block = triton.next_power_of_2(n_columns)
    with torch.cuda.device_of(weight):  # triton launches on the current GPU, which may be another one
        row_kernel[(n_rows,)](
            weight, norm, pruned, keep, has_nan, n_leaving, I=n_columns, BLOCK_I=block, **_options(block)
        )
    return Pruned(pruned, None if keep is None else keep.view(torch.bool)), has_nan


def _options(block: int) -> dict[str, int]:
    """Return 32 scores per thread, and few enough registers for 1,024 threads per multiprocessor at a time."""
    options = {"num_warps": max(1, block // SCORES)}
    return options if INTERPRETED else options | {"maxnreg": 64}


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    n_leaving: int,
    is_score: bool = False,
) -> tuple[Tensor, Tensor | None, int]:
    """Draw random arguments for `launch`, with ties: weight (O, I) and norm (I,), or a score (O, I) also below zero."""
    where = {"generator": generator, "device": generator.device}
    weight = (4 * torch.randn(shape, **where)).round() / 4  # few values, many of them more than once
    weight[:, 0] = -0.0
    weight = weight.to(device, dtype)
    if is_score:
        return weight, None, n_leaving
    return weight, torch.randint(1, 3, (shape[1],), **where).to(device, torch.float32) / 3, n_leaving


def _check(weight: Tensor, norm: Tensor | None, n_leaving: int, write: str) -> None:
    if write not in WRITES:
        raise ValueError(f"write={write!r}: expected one of {WRITES}; choose what to write")
    if weight.ndim != 2 or not 0 < n_leaving < weight.shape[1] <= WIDEST:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} and {n_leaving} entries leave each row: expected at least one "
            f"that leaves, one that stays, and at most {WIDEST} columns; call reference() for others"
        )
    check_tensor("weight", weight, tuple(weight.shape), FLOATS)
    if norm is not None:
        check_tensor("norm", norm, (weight.shape[1],), (torch.float32,))
        check_device(weight=weight, norm=norm)
