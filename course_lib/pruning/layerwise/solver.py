"""Optimal brain surgeon one column at a time, for all rows in parallel: the solver of SparseGPT and of GPTQ.

Frantar, Alistarh, SparseGPT, 2023, https://arxiv.org/abs/2301.00774 (algorithm 1)
Frantar, Ashkboos, Hoefler, Alistarh, GPTQ, 2022, https://arxiv.org/abs/2210.17323 (algorithm 1)

Dimension key: O outputs (rows), I inputs (columns), W columns of a strip.

The solver processes columns from left to right. It replaces column w_i by its pruned or rounded values q_i, freezes it,
and the columns right of it compensate for the error e_i = w_i − q_i: w_j −= e_i · U_ij / U_ii for j > i.

Deviation: algorithm 1 updates later columns early, its own block after each column and the rest after each block. Here
a column collects its updates just before it is processed: those of earlier blocks and of earlier strips of its block as
matrix products, those of its own strip one column at a time. The sums are the same, but each weight is written three
times instead of once per earlier column.

Weights are stored transposed, (I, O), so that a column of the layer is contiguous in memory.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for
from course_lib.pruning.layerwise.block_masks import Tournament, choose_in_block, keep_in_block
from course_lib.pruning.layerwise.cholesky import Factor
from course_lib.sparsity.patterns import NofM, Pattern

STRIP = 16  # columns processed one at a time between two matrix products: few enough to stay in the cache


@runtime_checkable
class ColumnRounder(Protocol):
    """A fixed set of values that a layer's weights may take, such as a quantization grid."""

    def round_column(self, column: Float[Tensor, "O"], index: int) -> Float[Tensor, "O"]:
        """Return the weights of input `index`, rounded to their grid."""


@runtime_checkable
class Rounding(Protocol):
    """A rule that derives the grid from the dense weight."""

    def grid(self, weight: Float[Tensor, "O I"]) -> ColumnRounder:
        """Return the grid of this weight."""


@dataclass(frozen=True)
class Solution:
    """The pruned weight, its mask, and the error of each column when it was frozen."""

    weight: Float[Tensor, "O I"]
    keep: Bool[Tensor, "O I"]
    errors: Float[Tensor, "I O"]  # e_i = w_i − q_i, with w_i after all updates
    factor: Factor

    @property
    def losses(self) -> Float[Tensor, "O"]:
        """Loss increase per row: Σ_i e_i² / (2 U_ii²) = ½ Δ H Δᵀ, with Δ the total change of the row and H damped."""
        return (self.errors / self.factor.diagonal.to(self.errors.dtype)[:, None]).square().sum(0) / 2


def solve(
    weight: Float[Tensor, "O I"], factor: Factor, pattern: Pattern, block_size: int, grid: ColumnRounder | None = None
) -> Solution:
    """Prune the weight, and round it if there is a grid.

    Weights that are zero already are pruned first and stay zero, so an earlier mask is only ever extended.

    Args:
        factor: Cholesky factor of the inverse Hessian of the layer's inputs.
        block_size: columns whose mask is chosen together (except for N:M, which chooses it per group).
    """
    group = pattern.m if isinstance(pattern, NofM) else 1
    kernel = kernel_for("weights.sparsegpt_columns", weight.detach(), width=block_size, group=group)
    if grid is None and kernel:
        return _solve_on_chip(kernel, weight, factor, pattern, block_size)
    work = _Work.begin(weight, factor, pattern, grid)
    for start in range(0, weight.shape[1], block_size):
        work.settle_block(start, min(start + block_size, weight.shape[1]))
    return Solution(work.weight.T, (work.dropped == 0).T, work.errors, factor)


def _solve_on_chip(
    kernel: ModuleType, weight: Float[Tensor, "O I"], factor: Factor, pattern: Pattern, block_size: int
) -> Solution:
    """Solve on a GPU: a kernel processes the columns of a block, one matrix product per block updates all later ones.

    Each program of the kernel processes a few rows, so weights are not transposed. As in algorithm 1, a block's errors
    update all later columns right away: such a product is large enough to use the whole GPU, and a product as narrow as
    a block is not. The host does not synchronise with the GPU before the end.
    """
    work = weight.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    work.masked_fill_(factor.dead, 0)
    upper = factor.upper.float().contiguous()
    inverse_diagonal, n_inputs = 1 / upper.diagonal(), work.shape[1]
    errors, zero = torch.empty_like(work), work == 0  # errors: e_i / U_ii
    whole = kernel.Whole(work, errors, torch.empty_like(zero), zero, upper, torch.zeros_like(upper[0, :1].int()))
    n, m = (pattern.n, pattern.m) if isinstance(pattern, NofM) else (1, 1)
    for start in range(0, n_inputs, block_size):
        # Choose the block's mask from |w_i| / U_ii (for N:M the kernel does it), then freeze its columns.
        end = min(start + block_size, n_inputs)
        block = slice(start, end)
        if m == 1:
            score = (work[:, block] * inverse_diagonal[block]).abs_().masked_fill_(zero[:, block], -1)
            whole.keep[:, block] = choose_in_block(pattern, score, start)
        kernel.settle(whole, start, end, n, m)
        # w_j −= Σ_i e_i / U_ii · U_ij for all columns j right of the block:
        # (O, I − end) −= (O, end − start) @ (end − start, I − end)
        work[:, end:].addmm_(errors[:, block], upper[block, end:], alpha=-1)
    if bool(work.isnan().any() | errors.isnan().any()):
        raise ValueError("the solver met NaN: expected finite weights and a factor of their inputs; look for overflows")
    return Solution(work, whole.keep.logical_and_(~zero), errors.mul_(factor.diagonal).T, factor)


@dataclass(kw_only=True)
class _Work:
    """State of the solver. Earlier columns are frozen; later columns still lack some updates."""

    weight: Float[Tensor, "I O"]
    zero: Bool[Tensor, "I O"]  # weights that were zero before pruning
    has_zeros: list[bool]  # per column, so that most scores need no masking
    dropped: Float[Tensor, "I O"]  # 1 for pruned weights, 0 for kept ones
    errors: Float[Tensor, "I O"]  # zero until the column is frozen
    update: Float[Tensor, "I I"]  # row j holds U_ij / U_ii for i < j, zeros elsewhere
    inverse_diagonal: Float[Tensor, "I 1"]  # 1 / U_ii
    pattern: Pattern
    tournament: Tournament | None  # for N:M patterns
    grid: ColumnRounder | None

    @classmethod
    def begin(cls, weight: Tensor, factor: Factor, pattern: Pattern, grid: ColumnRounder | None) -> "_Work":
        dtype = torch.promote_types(weight.dtype, torch.float32)
        work = weight.detach().to(dtype).T.clone(memory_format=torch.contiguous_format)
        work[factor.dead] = 0  # inputs that are always zero contribute nothing
        zero = work == 0
        inverse_diagonal = 1 / factor.diagonal.to(dtype)[:, None]
        return cls(
            weight=work,
            zero=zero,
            has_zeros=zero.any(1).tolist(),
            dropped=torch.empty_like(work),
            errors=torch.zeros_like(work),
            update=(factor.upper.to(dtype) * inverse_diagonal).T.tril(-1),
            inverse_diagonal=inverse_diagonal,
            pattern=pattern,
            tournament=Tournament.of(pattern, work) if isinstance(pattern, NofM) else None,
            grid=grid,
        )

    def settle_block(self, start: int, end: int) -> None:
        """Prune and freeze columns start … end. The mask is chosen for the block, or for N:M per group of columns."""
        self._take_updates(start, end, 0, start)  # from all earlier blocks
        if self.tournament is None:
            score = self._score(start, end)
            self._drop(start, end, (~keep_in_block(self.pattern, score.T, start)).T)
        width = STRIP if self.tournament is None else self.pattern.m * max(1, STRIP // self.pattern.m)
        for first in range(start, end, width):
            last = min(first + width, end)
            self._take_updates(first, last, start, first)  # from earlier strips of this block
            if self.tournament is None:
                self._settle(first, last)
                continue
            for group in range(first, last, self.pattern.m):
                # A group's scores need all updates, also those of earlier groups in this strip.
                self._take_updates(group, group + self.pattern.m, first, group)
                losers = self.tournament.losers(self._score(group, group + self.pattern.m))
                self._drop(group, group + self.pattern.m, losers)
                self._settle(group, group + self.pattern.m)

    def _take_updates(self, start: int, end: int, since: int, until: int) -> None:
        """Subtract from the columns start … end the updates for the errors of the columns since … until."""
        if until > since:
            # w_j −= Σ_i e_i · U_ij / U_ii                    (W, O) −= (W, until − since) @ (until − since, O)
            self.weight[start:end].addmm_(self.update[start:end, since:until], self.errors[since:until], alpha=-1)

    def _score(self, start: int, end: int) -> Float[Tensor, "W O"]:
        """|w_i| / U_ii. Its square is twice the loss increase of pruning w_i if later columns compensate optimally."""
        score = (self.weight[start:end] * self.inverse_diagonal[start:end]).abs_()
        if any(self.has_zeros[start:end]):
            score.masked_fill_(self.zero[start:end], -1)  # below every other score, so pruned first
        return score

    def _drop(self, start: int, end: int, chosen: Bool[Tensor, "W O"]) -> None:
        """Mark the chosen weights, and those that were zero before, as pruned."""
        torch.logical_or(self.zero[start:end], chosen, out=self.dropped[start:end])

    def _settle(self, start: int, end: int) -> None:
        """Freeze columns start … end one at a time.

        The errors of later columns are still zero, so each column can multiply the errors of the whole strip.
        """
        weight, errors = self.weight[start:end], self.errors[start:end]  # (W, O)
        update, errors_by_row = self.update[start:end, start:end].unbind(0), errors.T  # W rows of (W,); (O, W)
        columns = zip(weight.unbind(0), errors.unbind(0), self.dropped[start:end].unbind(0), strict=True)
        for i, (column, error, dropped) in enumerate(columns):  # each (O,), and written in place
            # w_i −= Σ_k e_k · U_ki / U_kk over the columns k of this strip left of i
            if i:
                column.addmv_(errors_by_row, update[i], alpha=-1)
            # q_i = 0 for pruned weights and w_i for kept ones, so e_i = w_i − q_i = w_i · dropped
            torch.mul(column, dropped, out=error)
            if self.grid is not None:
                # q_i = round(w_i − e_i), and e_i = w_i − q_i includes the rounding error
                rounded_column = self.grid.round_column(column - error, start + i)
                torch.sub(column, rounded_column, out=error)
                column.copy_(rounded_column)
        if self.grid is None:
            weight.sub_(errors)  # q_i = w_i − e_i
