"""Frantar, Alistarh 2023, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot" (SparseGPT),
https://arxiv.org/abs/2301.00774: the loop over the columns of one block (algorithm 1), for a tile of rows on chip.

Dimension key: O outputs (rows), W columns of a block, M columns a group, N of them kept.

In column i, pruned entries become zero, and the columns right of it compensate: w_j -= e_i U_ij with
e_i = (w_i - q_i) / U_ii, where U is the block of the Cholesky factor of the inverse Hessian. Rows are independent, so a
program processes a few of them through all W columns without leaving its registers. In torch every column reads and
writes all columns right of it: W / 2 times the weight instead of once.

Each row belongs to one warp, which executes about 70 instructions for each column (106 with 2:4, most of them to find
the lowest of a group): the product and its sum over the warp, a row of the factor, one update for each of a thread's
four columns. On an H200 14,336 rows of 128 columns take 163 us with a mask and 268 us with 2:4 (the loop in torch: 11
and 34 ms). Of this, issuing the instructions at 1.98 GHz takes 123 and 186 us, and moving the bytes 5 us.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton
from jaxtyping import Bool, Float, Int32
from torch import Tensor

from course_lib.sparsity.patterns import NofM

WIDEST = 128  # columns: the block of the paper, and what a tile's registers hold
GROUPS = (2, 4, 8, 16)  # M: groups must fill powers of two
# Rows of a program, one for each warp. Not tuned: a tuner runs a kernel several times, and this one changes its weight.
ROWS = 4
# For the tests: ragged tiles and blocks, whole ones, a single weight; the mask given, or chosen group by group.
CASES = (
    {"shape": (9, 20)},
    {"shape": (5, 24), "n": 2, "m": 4},
    {"shape": (1, 1)},
    {"shape": (8, 32), "n": 3, "m": 8},
    {"shape": (3, 48), "n": 1, "m": 16},
    {"shape": (8, 128)},
    {"shape": (7, 36), "n": 2, "m": 4, "zeros": 0.6},
    {"shape": (4, 20), "zeros": 0.3},
)


class Settled(NamedTuple):
    """The pruned block, and e: the errors for which the columns right of the block still have to compensate, by e @ U.

    `keep` is the mask if the block was pruned to n of m, and None if the mask was given.
    """

    weight: Float[Tensor, "O W"]
    errors: Float[Tensor, "O W"]
    keep: Bool[Tensor, "O W"] | None


def reference(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
    zero: Bool[Tensor, "O W"] | None = None,
) -> Settled:
    """Process one column after the other, in float32. Without a mask, n of m columns are kept, chosen when reached."""
    work, errors = weight.float(), torch.zeros(weight.shape, device=weight.device)
    work = work.clone() if work is weight else work
    zero = torch.zeros_like(weight, dtype=torch.bool) if zero is None else zero
    chosen = torch.ones_like(zero) if keep is None else keep & ~zero
    inverse = 1 / upper.diagonal()
    for i in range(weight.shape[1]):
        if keep is None and i % m == 0:
            group = slice(i, i + m)
            cost = (work[:, group] * inverse[group]).abs().masked_fill(zero[:, group], -1)
            chosen[:, group] = NofM(n, m).keep(cost) & ~zero[:, group]
        errors[:, i] = work[:, i].masked_fill(chosen[:, i], 0) * inverse[i]
        work[:, i + 1 :] -= errors[:, i, None] * upper[i, i + 1 :]
    pruned = work.masked_fill(~chosen, 0).to(weight.dtype)
    return Settled(pruned, errors.to(weight.dtype), chosen if keep is None else None)


def bytes_moved(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
    zero: Bool[Tensor, "O W"] | None = None,
) -> int:
    """Count the bytes to move at least: weight, factor, masks read once; weight, errors, new mask written once."""
    masks = weight.numel() * (1 if zero is None else 2)  # the mask is read or written, not both
    return 3 * weight.numel() * weight.element_size() + upper.numel() * upper.element_size() + masks


@jit
def columns_kernel(
    weight, upper, keep, zero, pruned, errors, has_nan, O, stride,
    W: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """All columns of BLOCK_O rows. M = 1 where the mask is given, else it is written. All rows are `stride` apart.

    The inverse of the diagonal is rounded as IEEE 754 asks (`/` may be off by two units of the last place), so that a
    group is chosen as the reference chooses it.
    """
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    column = tl.arange(0, BLOCK_W)
    inside = (row < O)[:, None] & (column < W)[None, :]
    offset = row.to(tl.int64)[:, None] * stride + column[None, :]
    w = tl.load(weight + offset, mask=inside, other=0.0).to(tl.float32)
    free = tl.full([BLOCK_O, BLOCK_W], 1, tl.int32)  # 0 where a weight is pruned whatever its cost
    if zero is not None:
        free = 1 - tl.load(zero + offset, mask=inside, other=0).to(tl.int32)
    stays = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
    if M == 1:
        stays = tl.load(keep + offset, mask=inside, other=0).to(tl.int32) * free
    block_errors = tl.zeros([BLOCK_O, BLOCK_W], tl.float32)
    seen_nan = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
    # 64 bits: the factor of a wide layer has more than 2^31 entries
    diagonal = column.to(tl.int64) * (stride + 1)
    inverse = tl.div_rn(1.0, tl.load(upper + diagonal, mask=column < W, other=1.0))[None, :]
    each_row = tl.zeros([BLOCK_O, 1], tl.int32)
    right_of = (each_row == 0) & (column < W)[None, :]
    for start in range(0, W, M):
        if M > 1:
            # One member of the group after the other is held against all columns: a reshape into groups would give
            # every thread whole rows.
            cost = tl.where(free > 0, tl.abs(w * inverse), -1.0)
            n_better = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
            for i in range(start, start + M):
                other = tl.sum(tl.where((column == i)[None, :], cost, 0.0), 1)[:, None]
                n_better += ((other > cost) | ((other == cost) & (i > column)[None, :])).to(tl.int32)
            here = ((column >= start) & (column < start + M))[None, :]
            stays = tl.where(here, (n_better < N).to(tl.int32) * free, stays)
            seen_nan = tl.where(here & (cost != cost), 1, seen_nan)
        for i in range(start, start + M):
            present = (column == i)[None, :]
            # Loaded once per row: of one row, they would change hands, and the warps wait for each other.
            owed = tl.load(
                upper + i * stride + column[None, :] + each_row, mask=right_of & (column > i)[None, :], other=0.0
            )
            # e_i = (w_i - q_i) / U_ii: one product for each row, all others zero.
            error = tl.sum(tl.where(present & (stays == 0), w * inverse, 0.0), 1)
            block_errors = tl.where(present, error[:, None], block_errors)
            w -= error[:, None] * owed
    w = tl.where(stays > 0, w, 0.0)
    tl.store(pruned + offset, w.to(pruned.dtype.element_ty), mask=inside)
    tl.store(errors + offset, block_errors.to(errors.dtype.element_ty), mask=inside)
    if M > 1:
        tl.store(keep + offset, stays.to(tl.uint8), mask=inside)
        if tl.max(tl.max(seen_nan, 1), 0) > 0:
            tl.store(has_nan, 1)


def takes(weight: Tensor, width: int, group: int) -> bool:
    """Return whether the kernel can process blocks of `width` columns, chosen in groups: 1 if masks are given."""
    return weight.ndim == 2 and 0 < width <= WIDEST and group in (1, *GROUPS) and weight.numel() > 0


def launch(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
    zero: Bool[Tensor, "O W"] | None = None,
) -> Settled:
    """Prune the block by a mask or to n of m, with updates of the columns right of each one. Also returns the errors.

    Weights marked in `zero` are always pruned: first in their group, or whatever the mask says.
    """
    _check(weight, upper, keep, n, m, zero)
    if not runs_kernel(weight):
        return reference(weight, upper, keep, n, m, zero)
    settled, has_nan = enqueue(weight, upper, keep, n, m, zero)
    if keep is None and has_nan.item():  # the one wait for the GPU
        raise ValueError("the score has NaN: expected comparable numbers; look for NaN in the weight and in the factor")
    return settled


def enqueue(
    weight: Tensor, upper: Tensor, keep: Tensor | None, n: int, m: int, zero: Tensor | None = None
) -> tuple[Settled, Tensor]:
    """Start the kernel and return without waiting: the results, and a flag that says whether a score was NaN."""
    pruned = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    errors = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    has_nan = torch.zeros(1, dtype=torch.int32, device=weight.device)
    chosen = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device) if keep is None else None
    mask = chosen if keep is None else keep.view(torch.uint8)
    zero = None if zero is None else zero.view(torch.uint8)
    n_of_m = (n, m) if keep is None else (1, 1)
    _run(weight, upper, mask, zero, pruned, errors, has_nan, n_of_m, weight.shape[1], weight.shape[1])
    return Settled(pruned, errors, None if chosen is None else chosen.view(torch.bool)), has_nan


class Whole(NamedTuple):
    """A matrix that is processed block by block: all parts are contiguous and have I columns."""

    weight: Float[Tensor, "O I"]  # float32
    errors: Float[Tensor, "O I"]
    keep: Bool[Tensor, "O I"]
    zero: Bool[Tensor, "O I"]
    upper: Float[Tensor, "I I"]
    has_nan: Int32[Tensor, "1"]


def settle(whole: Whole, start: int, end: int, n: int = 1, m: int = 1) -> None:
    """Process columns start … end in place and without waiting: write their errors, and with m > 1 their mask.

    With m = 1 their mask is read.
    """
    block = slice(start, end)
    weight, errors, keep, zero = (part[:, block] for part in whole[:4])
    masks = keep.view(torch.uint8), zero.view(torch.uint8)
    upper, stride = whole.upper[block, block], whole.upper.shape[1]
    _run(weight, upper, *masks, weight, errors, whole.has_nan, (n, m), end - start, stride)


def _run(
    weight: Tensor, upper: Tensor, keep: Tensor, zero: Tensor | None, pruned: Tensor, errors: Tensor, has_nan: Tensor,
    n_of_m: tuple[int, int], width: int, stride: int,
) -> None:  # fmt: skip
    (n, m), n_rows = n_of_m, len(weight)
    with torch.cuda.device_of(weight):  # triton launches on the current GPU, which may be another one
        columns_kernel[(triton.cdiv(n_rows, ROWS),)](
            weight, upper, keep, zero, pruned, errors, has_nan, O=n_rows, stride=stride,
            W=width, N=n, M=m, BLOCK_W=max(m, triton.next_power_of_2(width)), BLOCK_O=ROWS, num_warps=ROWS,
        )  # fmt: skip


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    n: int | None = None,
    m: int | None = None,
    zeros: float | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, int, int, Tensor | None]:
    """Draw random arguments for `launch`: weight (O, W), a factor (W, W), and a mask if no n and m are given.

    With a fraction `zeros`, that many weights are zero before, and their mask is returned too.
    """
    where = {"generator": generator, "device": generator.device}
    width = shape[1]
    weight = torch.randn(shape, **where).to(device, dtype)
    inputs = torch.randn(3 * width, width, **where, dtype=torch.float64)
    inverse = torch.linalg.inv(inputs.T @ inputs / width + 0.1 * torch.eye(width).to(inputs))
    upper = torch.linalg.cholesky(inverse, upper=True).float().contiguous().to(device)
    zero = None if zeros is None else (torch.rand(shape, **where) < zeros).to(device)
    if zero is not None:
        weight[zero] = 0
    if n is not None:
        return weight, upper, None, n, m, zero
    return weight, upper, (torch.rand(shape, **where) < 0.5).to(device), 2, 4, zero


def _check(weight: Tensor, upper: Tensor, keep: Tensor | None, n: int, m: int, zero: Tensor | None) -> None:
    if weight.ndim != 2 or not 0 < weight.shape[1] <= WIDEST or weight.shape[0] == 0:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: expected rows and 1 to {WIDEST} columns; take a block at a time"
        )
    width = weight.shape[1]
    check_tensor("weight", weight, tuple(weight.shape), FLOATS)
    check_tensor("upper", upper, (width, width), (torch.float32,))
    masks = {name: mask for name, mask in (("keep", keep), ("zero", zero)) if mask is not None}
    for name, mask in masks.items():
        check_tensor(name, mask, tuple(weight.shape), (torch.bool,))
    check_device(weight=weight, upper=upper, **masks)
    if keep is not None:
        return
    NofM(n, m)
    if m not in GROUPS or width % m:
        raise ValueError(
            f"n:m = {n}:{m} for {width} columns: expected m in {GROUPS} that divides them; choose another m, or "
            "give the mask"
        )
