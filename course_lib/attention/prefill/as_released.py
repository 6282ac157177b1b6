"""Reproduce two lines of FlexPrefill's public code to measure their effect. https://github.com/bytedance/FlexPrefill

Nothing else in the library uses these. Deviation: the public code differs from `FlexPrefill` in further ways, which
are not reproduced here: it leaves out the block that crosses γ; it adds the first column and the diagonal after the
selection; the second of the two lines assumes a block size of 128; and slash lines are pooled from the far end, so
that they are misaligned if the length is not a multiple of the block size.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, R last queries, D size of a
head.
"""

from dataclasses import dataclass
from math import ceil

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.lines import (
    last_weights,
    on_block_diagonals,
    on_columns,
    slashes,
    where_lines_are,
)


def quotient_divergence(p: Float[Tensor, "*rows N"], q: Float[Tensor, "*rows N"]) -> Float[Tensor, "*rows"]:
    """√JSD computed with the logarithm of a quotient: NaN if p or q has an outcome of probability 0.

    NaN < τ is false, so such a head becomes vertical-slash for every attention pattern.
    """
    m = (p + q) / 2
    return ((p * (p / m).log() + q * (q / m).log()).sum(dim=-1) / 2).sqrt()


def tokens_taken_for_blocks(mass: Float[Tensor, "*rows T"], share: float, block_size: int) -> Int[Tensor, "*rows"]:
    """Return ⌊n / S⌋ + 1 blocks for the n tokens that hold the fraction, as if these n tokens were adjacent.

    For example, 300 scattered tokens become 3 blocks of 128, which contain only a few of them.
    """
    reached = mass.sort(dim=-1, descending=True).values.cumsum(dim=-1)
    return ((reached <= share).sum(dim=-1) + 1) // block_size + 1


@dataclass(frozen=True, kw_only=True)
class AsReleased(FlexPrefill):
    """FlexPrefill with these two lines, the second for any block size; everything else is as in `FlexPrefill`."""

    def _masses(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float
    ) -> tuple[Tensor, ...]:
        """Return the mass of columns and diagonals of blocks, and of single tokens and distances."""
        weights = last_weights(query, keys, scaling, self.block_size)
        slash = slashes(weights)
        diagonals = on_block_diagonals(slash, self.block_size)
        return on_columns(weights, self.block_size), diagonals, weights.mean(dim=1), slash

    def _divergence(
        self,
        query: Float[Tensor, "heads T D"],
        keys: Float[Tensor, "H T D"],
        scaling: float,
        columns: Float[Tensor, "heads N"],
    ) -> Float[Tensor, "heads"]:
        return quotient_divergence(self._guess(query, keys, scaling), columns)

    def _lines(self, masses: tuple[Tensor, ...], share: float) -> Bool[Tensor, "heads N N"]:
        columns, diagonals, by_token, slash = masses
        return where_lines_are(self._highest(columns, by_token, share), self._highest(diagonals, slash, share))

    def _highest(
        self, mass: Float[Tensor, "heads N"], by_token: Float[Tensor, "heads T"], share: float
    ) -> Bool[Tensor, "heads N"]:
        """Return as many lines of blocks as the released code computes from the number of tokens."""
        budget = ceil(self.min_budget / self.block_size)
        count = tokens_taken_for_blocks(by_token, share, self.block_size).clamp(min=budget) if share else budget
        mass = torch.cat([torch.full_like(mass[:, :1], torch.inf), mass[:, 1:]], dim=1)
        rank = mass.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return rank < torch.as_tensor(count, device=mass.device).clamp(min=1).view(-1, 1)
