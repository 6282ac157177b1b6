"""Optimal brain surgeon column by column, for all rows at once: the solver of SparseGPT and of GPTQ.

Dimension key: O outputs (rows), I inputs (columns), W columns of a strip.

Weights are stored transposed here, (I, O), so that a column of the layer is one run of memory. Columns are settled from
left to right. What a column loses, e_i = w_i − q_i, those right of it make up for: w_j −= e_i · U_ij / U_ii.
Nothing is sent ahead. Before a column is settled it takes in the updates from all columns left of it, in three pieces:
those of earlier blocks and of this block as matrix products, the last few one at a time. The sums are those of the
plain loop; a weight is written three times instead of once for every column left of it.
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

STRIP = 16  # columns settled one at a time between two matrix products: few enough to stay in the cache


@runtime_checkable
class ColumnRounder(Protocol):
    """The few values that the weights of a layer may take, such as those of a quantization grid."""

    def round_column(self, column: Float[Tensor, "O"], index: int) -> Float[Tensor, "O"]:
        """The weights of input `index`, rounded."""


@runtime_checkable
class Rounding(Protocol):
    """A way to fix such values from the dense weight."""

    def grid(self, weight: Float[Tensor, "O I"]) -> ColumnRounder:
        """The values that suit this weight."""


@dataclass(frozen=True)
class Solution:
    """The pruned weight, its mask, and what settling each column took away."""

    weight: Float[Tensor, "O I"]
    keep: Bool[Tensor, "O I"]
    errors: Float[Tensor, "I O"]  # e_i = w_i − q_i, when column i was settled
    factor: Factor

    @property
    def losses(self) -> Float[Tensor, "O"]:
        """Σ_i e_i² / (2 U_ii²), row by row: ½ Δ H Δᵀ for the change Δ of the row and the damped H."""
        return (self.errors / self.factor.diagonal.to(self.errors.dtype)[:, None]).square().sum(0) / 2


def solve(
    weight: Float[Tensor, "O I"], factor: Factor, pattern: Pattern, block_size: int, grid: ColumnRounder | None = None
) -> Solution:
    """Prune, and round to the grid where there is one, updating what is still to the right.

    Weights that are zero already stay zero, and leave first: an earlier mask is extended, never filled in again.
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
    """The same with a kernel that takes rows through all columns of a block, and one product per block for the rest.

    Weights are not transposed here: each program of the kernel has a few rows. The errors of a block are sent ahead at
    once, as algorithm 1 has it: such a product fills a GPU, and one that is as narrow as a block does not.
    The host never waits for the GPU until all is done.
    """
    work = weight.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    work.masked_fill_(factor.dead, 0)
    upper = factor.upper.float().contiguous()
    inverse_diagonal, n_inputs = 1 / upper.diagonal(), work.shape[1]
    errors, zero = torch.empty_like(work), work == 0  # errors: e_i / U_ii
    whole = kernel.Whole(work, errors, torch.empty_like(zero), zero, upper, torch.zeros_like(upper[0, :1].int()))
    n, m = (pattern.n, pattern.m) if isinstance(pattern, NofM) else (1, 1)
    for start in range(0, n_inputs, block_size):
        end = min(start + block_size, n_inputs)
        block = slice(start, end)
        if m == 1:
            score = (work[:, block] * inverse_diagonal[block]).abs_().masked_fill_(zero[:, block], -1)
            whole.keep[:, block] = choose_in_block(pattern, score, start)
        kernel.settle(whole, start, end, n, m)
        # w_j −= Σ_i e_i / U_ii · U_ij for all columns j right of the block     (O, I − end) −= (O, W) @ (W, I − end)
        work[:, end:].addmm_(errors[:, block], upper[block, end:], alpha=-1)
    if bool(work.isnan().any() | errors.isnan().any()):
        raise ValueError("the solver met NaN: expected finite weights and a factor of their inputs; look for overflows")
    return Solution(work, whole.keep.logical_and_(~zero), errors.mul_(factor.diagonal).T, factor)


@dataclass(kw_only=True)
class _Work:
    """The matrix on its way: columns left of the present one are settled, those right of it lack some updates."""

    weight: Float[Tensor, "I O"]
    zero: Bool[Tensor, "I O"]  # before the start
    has_zeros: list[bool]  # by column
    dropped: Float[Tensor, "I O"]  # 1 where the weight leaves, 0 where it stays
    errors: Float[Tensor, "I O"]  # zero until the column is settled
    update: Float[Tensor, "I I"]  # row j holds U_ij / U_ii for i < j, and zeros
    inverse_diagonal: Float[Tensor, "I 1"]  # 1 / U_ii
    pattern: Pattern
    tournament: Tournament | None  # for n of m
    grid: ColumnRounder | None

    @classmethod
    def begin(cls, weight: Tensor, factor: Factor, pattern: Pattern, grid: ColumnRounder | None) -> "_Work":
        dtype = torch.promote_types(weight.dtype, torch.float32)
        work = weight.detach().to(dtype).T.clone(memory_format=torch.contiguous_format)
        work[factor.dead] = 0
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
        """Columns start … end. Their mask is chosen now, unless it is one of n of m: then group by group."""
        self._take_updates(start, end, 0, start)
        if self.tournament is None:
            score = self._score(start, end)
            self._drop(start, end, (~keep_in_block(self.pattern, score.T, start)).T)
        width = STRIP if self.tournament is None else self.pattern.m * max(1, STRIP // self.pattern.m)
        for first in range(start, end, width):
            last = min(first + width, end)
            self._take_updates(first, last, start, first)
            if self.tournament is None:
                self._settle(first, last)
                continue
            for group in range(first, last, self.pattern.m):
                self._take_updates(group, group + self.pattern.m, first, group)
                losers = self.tournament.losers(self._score(group, group + self.pattern.m))
                self._drop(group, group + self.pattern.m, losers)
                self._settle(group, group + self.pattern.m)

    def _take_updates(self, start: int, end: int, since: int, until: int) -> None:
        """Bring the columns start … end up to date with the errors of the columns since … until."""
        if until > since:
            # w_j −= Σ_i e_i · U_ij / U_ii                    (W, O) −= (W, until − since) @ (until − since, O)
            self.weight[start:end].addmm_(self.update[start:end, since:until], self.errors[since:until], alpha=-1)

    def _score(self, start: int, end: int) -> Float[Tensor, "W O"]:
        """|w_i| / U_ii, the root of what deleting the weight costs after the best update of those right of it."""
        score = (self.weight[start:end] * self.inverse_diagonal[start:end]).abs_()
        if any(self.has_zeros[start:end]):
            score.masked_fill_(self.zero[start:end], -1)
        return score

    def _drop(self, start: int, end: int, chosen: Bool[Tensor, "W O"]) -> None:
        torch.logical_or(self.zero[start:end], chosen, out=self.dropped[start:end])

    def _settle(self, start: int, end: int) -> None:
        """One column at a time; later errors are still zero, so every column can take in those of the whole strip."""
        weight, errors = self.weight[start:end], self.errors[start:end]  # (W, O)
        update, errors_by_row = self.update[start:end, start:end].unbind(0), errors.T  # W of (W,); (O, W)
        columns = zip(weight.unbind(0), errors.unbind(0), self.dropped[start:end].unbind(0), strict=True)
        for i, (column, error, dropped) in enumerate(columns):  # each (O,), and written in place
            # w_i −= Σ_k e_k · U_ki / U_kk over the columns k of this strip left of i
            if i:
                column.addmv_(errors_by_row, update[i], alpha=-1)
            # q_i = 0 where the weight leaves, w_i where it stays; e_i = w_i − q_i
            torch.mul(column, dropped, out=error)
            if self.grid is not None:
                # q_i is what stays, rounded, and the error is that of both
                rounded = self.grid.round_column(column - error, start + i)
                torch.sub(column, rounded, out=error)
                column.copy_(rounded)
        if self.grid is None:
            weight.sub_(errors)  # q_i = w_i − e_i
