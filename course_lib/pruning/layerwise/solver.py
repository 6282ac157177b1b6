"""Optimal brain surgeon column by column, for all rows at once: the solver of SparseGPT and of GPTQ.

Dimension key: O outputs (rows), I inputs (columns), W columns of a strip.

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

from course_lib.pruning.layerwise.block_masks import Tournament, keep_in_block
from course_lib.pruning.layerwise.cholesky import Factor
from course_lib.quantization.grid import Grid
from course_lib.sparsity.patterns import NofM, Pattern
from course_lib.sparsity.ranking import check_score

STRIP = 16  # columns settled one at a time between two matrix products: few enough to stay in the cache


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
    check_score(weight)
    work = _Work.begin(weight, factor, pattern, grid)
    for start in range(0, weight.shape[1], block_size):
        work.settle_block(start, min(start + block_size, weight.shape[1]))
    return Solution(work.weight.T, (work.leaves == 0).T, work.errors, factor)


@dataclass
class _Work:
    """The matrix on its way: columns left of the present one are settled, those right of it are owed something."""

    weight: Float[Tensor, "I O"]
    zero: Bool[Tensor, "I O"]  # before the start
    has_zeros: list[bool]  # by column
    leaves: Float[Tensor, "I O"]  # 1 where the weight goes, 0 where it stays
    errors: Float[Tensor, "I O"]
    owed: Float[Tensor, "I I"]  # row j holds U_ij / U_ii for i < j, and zeros
    price: Float[Tensor, "I 1"]  # 1 / U_ii
    pattern: Pattern
    tournament: Tournament | None  # for n of m
    grid: Grid | None

    @classmethod
    def begin(cls, weight: Tensor, factor: Factor, pattern: Pattern, grid: Grid | None) -> "_Work":
        dtype = torch.promote_types(weight.dtype, torch.float32)
        work = weight.detach().to(dtype).T.clone(memory_format=torch.contiguous_format)
        work[factor.dead] = 0
        zero, price = work == 0, 1 / factor.diagonal.to(dtype)[:, None]
        owed = (factor.upper.to(dtype) * price).T.tril(-1)
        tournament = Tournament.of(pattern, work) if isinstance(pattern, NofM) else None
        return cls(
            weight=work,
            zero=zero,
            has_zeros=zero.any(1).tolist(),
            leaves=torch.empty_like(work),
            errors=torch.zeros_like(work),
            owed=owed,
            price=price,
            pattern=pattern,
            tournament=tournament,
            grid=grid,
        )

    def settle_block(self, start: int, end: int) -> None:
        """Columns start … end. Their mask is chosen now, unless it is one of n of m: then group by group."""
        self._collect(start, end, 0, start)
        if self.tournament is None:
            score = self._score(start, end)
            self._leave(start, end, (~keep_in_block(self.pattern, score.T, start)).T)
        width = STRIP if self.tournament is None else self.pattern.m * max(1, STRIP // self.pattern.m)
        for first in range(start, end, width):
            last = min(first + width, end)
            self._collect(first, last, start, first)
            if self.tournament is None:
                self._settle(first, last)
                continue
            for group in range(first, last, self.pattern.m):
                self._collect(group, group + self.pattern.m, first, group)
                losers = self.tournament.losers(self._score(group, group + self.pattern.m))
                self._leave(group, group + self.pattern.m, losers)
                self._settle(group, group + self.pattern.m)

    def _collect(self, start: int, end: int, since: int, until: int) -> None:
        """Take in what the columns since … until owe the columns start … end."""
        if until > since:
            self.weight[start:end].addmm_(self.owed[start:end, since:until], self.errors[since:until], alpha=-1)

    def _score(self, start: int, end: int) -> Float[Tensor, "W O"]:
        """|w| / U_ii, the root of what deleting the weight costs after the best update of those right of it."""
        score = (self.weight[start:end] * self.price[start:end]).abs_()
        if any(self.has_zeros[start:end]):
            score.masked_fill_(self.zero[start:end], -1)
        return score

    def _leave(self, start: int, end: int, chosen: Bool[Tensor, "W O"]) -> None:
        torch.logical_or(self.zero[start:end], chosen, out=self.leaves[start:end])

    def _settle(self, start: int, end: int) -> None:
        """One column at a time; errors not yet made are still zero, so every column can take in the whole strip."""
        weight, errors = self.weight[start:end], self.errors[start:end]
        owed, made, rows = self.owed[start:end, start:end].unbind(0), errors.T, weight.unbind(0)
        for i, (row, error, leaves) in enumerate(
            zip(rows, errors.unbind(0), self.leaves[start:end].unbind(0), strict=True)
        ):
            if i:
                row.addmv_(made, owed[i], alpha=-1)
            torch.mul(row, leaves, out=error)
            if self.grid is not None:
                rounded = self.grid.round_column(row - error, start + i)
                torch.sub(row, rounded, out=error)
                row.copy_(rounded)
        if self.grid is None:
            weight.sub_(errors)
