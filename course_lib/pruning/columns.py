"""Optimal brain surgeon column by column, for all rows at once: the solver of SparseGPT and of GPTQ.

Dimension key: O outputs (rows), I inputs (columns).

Weights are stored transposed here, (I, O), so that a column of the layer is one run of memory. Columns are settled from
left to right. What a column loses, e_i = w_i − q_i, those right of it make up for: w_j −= e_i · U_ij / U_ii.
Nothing is sent ahead. Before a column is settled it takes in what all columns left of it owe it, in three pieces: those
of earlier blocks and of this block as matrix products, the last few one at a time. The sums are those of the plain
loop; a weight is written three times instead of once for every column left of it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.blockwise import keep_in_block
from course_lib.pruning.factor import Factor
from course_lib.quantization.grid import Grid
from course_lib.sparsity.patterns import NofM, Pattern

INNER = 16  # columns settled one at a time between two matrix products: few enough to stay in the cache


@dataclass(frozen=True)
class Solution:
    """What the solver found."""

    weight: Float[Tensor, "O I"]
    keep: Bool[Tensor, "O I"]
    errors: Float[Tensor, "I O"]  # e_i = w_i − q_i, when column i was settled
    factor: Factor

    @property
    def losses(self) -> Float[Tensor, "O"]:
        """Σ_i e_i² / (2 U_ii²), row by row: ½ Δ H Δᵀ for the change Δ of the row and the damped H."""
        return (self.errors / self.factor.diagonal.to(self.errors.dtype)[:, None]).square().sum(0) / 2


def solve(
    weight: Float[Tensor, "O I"], factor: Factor, pattern: Pattern, block_size: int, grid: Grid | None = None
) -> Solution:
    """Prune, and round to the grid where there is one, updating what is still to the right.

    Weights that are zero already stay zero, and leave first: an earlier mask is extended, never filled in again.
    """
    work = _Work.begin(weight, factor, pattern, grid)
    for start in range(0, weight.shape[1], block_size):
        work.settle_block(start, min(start + block_size, weight.shape[1]))
    return Solution(work.weight.T, work.keep.T, work.errors, factor)


@dataclass
class _Work:
    """The matrix on its way: columns left of the present one are settled, those right of it are owed something."""

    weight: Float[Tensor, "I O"]
    zero: Bool[Tensor, "I O"]  # before the start
    keep: Bool[Tensor, "I O"]
    errors: Float[Tensor, "I O"]
    owed: Float[Tensor, "I I"]  # row j holds U_ij / U_ii for i < j
    diagonal: Float[Tensor, "I 1"]
    pattern: Pattern
    grid: Grid | None

    @classmethod
    def begin(cls, weight: Tensor, factor: Factor, pattern: Pattern, grid: Grid | None) -> "_Work":
        work = (
            weight.detach()
            .to(torch.promote_types(weight.dtype, torch.float32))
            .T.clone(memory_format=torch.contiguous_format)
        )
        work[factor.dead] = 0
        upper = factor.upper.to(work.dtype)
        owed = (upper / upper.diagonal()[:, None]).T.contiguous()
        zero = work == 0
        return cls(work, zero, ~zero, torch.empty_like(work), owed, upper.diagonal()[:, None], pattern, grid)

    def settle_block(self, start: int, end: int) -> None:
        """Columns start … end, whose mask is chosen here unless it is one of n of m."""
        self._collect(start, end, 0, start)
        several = self.pattern.m if isinstance(self.pattern, NofM) else 0
        if not several:
            self._choose(start, end, start)
        inner = several * max(1, INNER // several) if several else INNER
        for first in range(start, end, inner):
            last = min(first + inner, end)
            self._collect(first, last, start, first)
            for column in range(first, last):
                if several and (column - first) % several == 0:
                    self._collect(column, column + several, first, column)
                    self._choose(column, column + several, start)
                    chosen = column
                self._settle(column, chosen if several else first)

    def _collect(self, start: int, end: int, since: int, until: int) -> None:
        """Take in what the columns since … until owe the columns start … end."""
        if until > since:
            self.weight[start:end].addmm_(self.owed[start:end, since:until], self.errors[since:until], alpha=-1)

    def _choose(self, start: int, end: int, block: int) -> None:
        """Score w² / U_ii²: what deleting the weight costs, after the best update of those right of it."""
        score = (self.weight[start:end] / self.diagonal[start:end]).square()
        score.masked_fill_(self.zero[start:end], -1)
        self.keep[start:end] &= keep_in_block(self.pattern, score.T, block).T

    def _settle(self, column: int, since: int) -> None:
        weight = self.weight[column]
        if column > since:
            weight.addmv_(self.errors[since:column].T, self.owed[column, since:column], alpha=-1)
        error = torch.mul(weight, ~self.keep[column], out=self.errors[column])
        if self.grid is None:
            weight.sub_(error)
        else:
            rounded = self.grid.round_column(weight - error, column)
            torch.sub(weight, rounded, out=error)
            weight.copy_(rounded)
