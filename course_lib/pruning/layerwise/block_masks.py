"""Masks for one block of columns at a time: SparseGPT chooses them when it reaches a block, after earlier updates.

Dimension key: O outputs (rows), I inputs (columns), W columns of a block, M columns of a group, P = M² pairs.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.layerwise.selection import keep_highest
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured
from course_lib.sparsity.ranking import check_score, n_pruned


def check_blockwise(pattern: Pattern, block_size: int) -> None:
    """Raise ValueError if the mask of a pattern cannot be chosen block by block."""
    if not isinstance(pattern, NofM | Unstructured):
        raise ValueError(
            f"got the pattern {pattern}, which needs the scores of all columns at once; expected Unstructured or NofM. "
            "Choose such a mask with another method, then update the weights: Refit(pattern)."
        )
    group = pattern.m if isinstance(pattern, NofM) else pattern.size if pattern.per == "column" else 1
    if block_size % group:
        down = block_size // group * group
        raise ValueError(
            f"got block_size={block_size} with the pattern {pattern}, whose groups of {group} columns would lie across "
            f"two blocks; expected a multiple of {group}, such as {down or group}."
        )


def keep_in_block(pattern: Pattern, score: Float[Tensor, "O W"], start: int) -> Bool[Tensor, "O W"]:
    """Choose the mask of columns start to start + W; over all blocks as many entries are pruned as in a whole matrix.

    A group that spans S rows loses n_pruned(end · S) − n_pruned(start · S) entries in this block, so that fractions of
    an entry carry over to the next block.
    """
    check_score(score)
    return choose_in_block(pattern, score, start)


def choose_in_block(pattern: Pattern, score: Float[Tensor, "O W"], start: int) -> Bool[Tensor, "O W"]:
    """`keep_in_block` without the check of the score, for a score that was checked or whose NaN is reported later.

    The host does not wait for the GPU, except if the groups of the pattern are columns.
    """
    if isinstance(pattern, NofM) or pattern.per == "column":
        return pattern.keep(score)
    rows, end = score.shape[0], start + score.shape[1]
    size = rows if pattern.per == "layer" else min(pattern.size, rows)
    whole = rows - rows % size
    parts = [(score[:whole].reshape(-1, size * score.shape[1]), size), (score[whole:].reshape(1, -1), rows - whole)]
    masks = [
        keep_highest(part, n_pruned(height * end, pattern.sparsity) - n_pruned(height * start, pattern.sparsity))
        for part, height in parts
        if height
    ]
    return torch.cat([mask.reshape(-1) for mask in masks]).reshape(score.shape)


@dataclass(frozen=True)
class Tournament:
    """The N:M mask of one group of columns, for all rows in parallel: all pairs of scores are compared.

    The result is that of NofM.keep. It takes a few operations on (M, O), the layout in which the solver stores weights.
    """

    sign: Float[Tensor, "M P"]  # what the result of pair (i, j), i against j, adds to the ranks of i and j
    never_first: Float[Tensor, "M 1"]
    n_leaving: int

    @classmethod
    def of(cls, pattern: NofM, like: Tensor) -> "Tournament":
        """Return the tournament of a pattern, for scores of the type and device of `like`."""
        members = torch.arange(pattern.m, device=like.device)
        first, second = members.repeat_interleave(pattern.m), members.repeat(pattern.m)
        # Each pair is compared once, in an order in which the left one is pruned in ties.
        sign = ((members[:, None] == second).to(like.dtype) - (members[:, None] == first).to(like.dtype)) * (
            first < second
        )
        return cls(sign, (pattern.m - 1 - members)[:, None].to(like.dtype), pattern.m - pattern.n)

    def losers(self, score: Float[Tensor, "M O"]) -> Bool[Tensor, "M O"]:
        """Return True for weights to prune: fewer than n_leaving of their group are pruned before them."""
        first_leaves = (score[:, None] <= score).to(score.dtype)  # (M, M, O)
        return torch.addmm(self.never_first, self.sign, first_leaves.flatten(0, 1)) < self.n_leaving
