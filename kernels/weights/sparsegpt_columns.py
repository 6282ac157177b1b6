"""Frantar, Alistarh 2023, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot" (SparseGPT),
https://arxiv.org/abs/2301.00774: the loop over the columns of one block (algorithm 1), for a tile of rows on chip.

Dimension key: O outputs (rows), W columns of a block, M columns a group, N of them kept.

Column i is processed: entries that are not kept become zero, and the columns right of it make up for it,
w_j -= e_i U_ij with e_i = (w_i - q_i) / U_ii, where U is the block of the Cholesky factor of the inverse Hessian.
Rows do not see each other, so a program takes a few of them through all W columns without leaving its registers. In
torch every column reads and writes all columns right of it: W / 2 times the weight instead of once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton, tuned
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.sparsity.patterns import NofM

WIDEST = 128  # columns: the block of the paper, and what a tile's registers hold
GROUPS = (2, 4, 8, 16)  # M: groups must fill powers of two
# For the tests: ragged tiles and blocks, whole ones, a single weight; the mask given, or chosen group by group.
CASES = (
    {"shape": (9, 20)},
    {"shape": (5, 24), "n": 2, "m": 4},
    {"shape": (1, 1)},
    {"shape": (8, 32), "n": 3, "m": 8},
    {"shape": (3, 48), "n": 1, "m": 16},
    {"shape": (8, 128)},
)


class Settled(NamedTuple):
    """The block with zeros, and e: what the columns right of the block still have to make up for, by e @ U."""

    weight: Float[Tensor, "O W"]
    errors: Float[Tensor, "O W"]


def reference(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
) -> Settled:
    """One column after the other, in float32. Without a mask, n of m columns are kept, chosen when they are reached."""
    work, errors = weight.float(), torch.zeros(weight.shape, device=weight.device)
    work = work.clone() if work is weight else work
    chosen = torch.ones_like(weight, dtype=torch.bool) if keep is None else keep
    for i in range(weight.shape[1]):
        if keep is None and i % m == 0:
            cost = (work[:, i : i + m] / upper.diagonal()[i : i + m]).abs()
            chosen[:, i : i + m] = NofM(n, m).keep(cost)
        errors[:, i] = work[:, i].masked_fill(chosen[:, i], 0) / upper[i, i]
        work[:, i + 1 :] -= errors[:, i, None] * upper[i, i + 1 :]
    return Settled(work.masked_fill(~chosen, 0).to(weight.dtype), errors.to(weight.dtype))


def bytes_moved(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
) -> int:
    """The weight, the factor and the mask read once, the pruned weight and the errors written once."""
    mask = 0 if keep is None else keep.numel()
    return 3 * weight.numel() * weight.element_size() + upper.numel() * upper.element_size() + mask


@tuned(
    ["O", "W", "M"],
    {"BLOCK_O": 8, "num_warps": 4},
    {"BLOCK_O": 4, "num_warps": 4},
)
@jit
def columns_kernel(
    weight, upper, keep, pruned, errors, has_nan, O,
    W: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """All columns of BLOCK_O rows. M = 1 where the mask is given.

    Divisions are rounded as IEEE 754 asks (`/` may be off by two units of the last place), so that a group is chosen as
    the reference chooses it.
    """
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    column = tl.arange(0, BLOCK_W)
    inside = (row < O)[:, None] & (column < W)[None, :]
    offset = row.to(tl.int64)[:, None] * W + column[None, :]
    w = tl.load(weight + offset, mask=inside, other=0.0).to(tl.float32)
    stays = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
    if keep is not None:
        stays = tl.load(keep + offset, mask=inside, other=0).to(tl.int32)
    block_errors = tl.zeros([BLOCK_O, BLOCK_W], tl.float32)
    seen_nan = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
    price = tl.load(upper + column * (W + 1), mask=column < W, other=1.0)[None, :]
    for start in range(0, W, M):
        if keep is None:
            # One member of the group after the other is held against all columns: a reshape into groups would give
            # every thread whole rows.
            cost = tl.abs(tl.div_rn(w, price))
            n_better = tl.zeros([BLOCK_O, BLOCK_W], tl.int32)
            for i in range(start, start + M):
                other = tl.sum(tl.where((column == i)[None, :], cost, 0.0), 1)[:, None]
                n_better += ((other > cost) | ((other == cost) & (i > column)[None, :])).to(tl.int32)
            here = ((column >= start) & (column < start + M))[None, :]
            stays = tl.where(here, (n_better < N).to(tl.int32), stays)
            seen_nan = tl.where(here & (cost != cost), 1, seen_nan)
        for i in range(start, start + M):
            present = (column == i)[None, :]
            owed = tl.load(upper + i * W + column, mask=(column > i) & (column < W), other=0.0)
            leaving = tl.sum(tl.where(present & (stays == 0), w, 0.0), 1)
            error = tl.div_rn(leaving, tl.load(upper + i * (W + 1)))
            block_errors = tl.where(present, error[:, None], block_errors)
            w -= error[:, None] * owed[None, :]
    w = tl.where(stays > 0, w, 0.0)
    tl.store(pruned + offset, w.to(pruned.dtype.element_ty), mask=inside)
    tl.store(errors + offset, block_errors.to(errors.dtype.element_ty), mask=inside)
    if tl.max(tl.max(seen_nan, 1), 0) > 0:
        tl.store(has_nan, 1)


def launch(
    weight: Float[Tensor, "O W"],
    upper: Float[Tensor, "W W"],
    keep: Bool[Tensor, "O W"] | None = None,
    n: int = 2,
    m: int = 4,
) -> Settled:
    """The block pruned by a mask or to n of m, the columns right of each having made up for it, and the errors."""
    _check(weight, upper, keep, n, m)
    if not runs_kernel(weight):
        return reference(weight, upper, keep, n, m)
    settled, has_nan = enqueue(weight, upper, keep, n, m)
    if keep is None and has_nan.item():  # the one wait for the GPU
        raise ValueError("the score has NaN: expected comparable numbers; look for NaN in the weight and in the factor")
    return settled


def enqueue(weight: Tensor, upper: Tensor, keep: Tensor | None, n: int, m: int) -> tuple[Settled, Tensor]:
    """Starts the kernel and returns without waiting: the results, and a flag that says whether a score was NaN."""
    pruned = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    errors = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    has_nan = torch.zeros(1, dtype=torch.int32, device=weight.device)
    mask = None if keep is None else keep.view(torch.uint8)
    n_rows, width = weight.shape
    group = m if keep is None else 1
    with torch.cuda.device_of(weight):  # triton launches on the current GPU, which may be another one
        columns_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]),)](
            weight, upper, mask, pruned, errors, has_nan, O=n_rows,
            W=width, N=n, M=group, BLOCK_W=max(group, triton.next_power_of_2(width)),
        )  # fmt: skip
    return Settled(pruned, errors), has_nan


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    n: int | None = None,
    m: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, int, int]:
    """Random arguments for `launch`: weight (O, W), a factor (W, W), and a mask where no n and m are given."""
    where = {"generator": generator, "device": generator.device}
    width = shape[1]
    weight = torch.randn(shape, **where).to(device, dtype)
    inputs = torch.randn(3 * width, width, **where, dtype=torch.float64)
    inverse = torch.linalg.inv(inputs.T @ inputs / width + 0.1 * torch.eye(width).to(inputs))
    upper = torch.linalg.cholesky(inverse, upper=True).float().contiguous().to(device)
    if n is not None:
        return weight, upper, None, n, m
    return weight, upper, (torch.rand(shape, **where) < 0.5).to(device), 2, 4


def _check(weight: Tensor, upper: Tensor, keep: Tensor | None, n: int, m: int) -> None:
    if weight.ndim != 2 or not 0 < weight.shape[1] <= WIDEST or weight.shape[0] == 0:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: expected rows and 1 to {WIDEST} columns; take a block at a time"
        )
    width = weight.shape[1]
    check_tensor("weight", weight, tuple(weight.shape), FLOATS)
    check_tensor("upper", upper, (width, width), (torch.float32,))
    if keep is not None:
        check_tensor("keep", keep, tuple(weight.shape), (torch.bool,))
        check_device(weight=weight, upper=upper, keep=keep)
        return
    NofM(n, m)
    if m not in GROUPS or width % m:
        raise ValueError(
            f"n:m = {n}:{m} for {width} columns: expected m in {GROUPS} that divides them; choose another m, or "
            "give the mask"
        )
    check_device(weight=weight, upper=upper)
