"""Baselines for sparse prefill with a fixed density: every head reads the same number of blocks.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.index import BlockIndex, always_read, causal_blocks, n_blocks
from course_lib.attention.prefill.lines import block_distance, line_masses
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.settings import check_count, is_real


@dataclass(frozen=True, kw_only=True)
class OfDensity(SparsePrefill):
    """Read exactly round(density · N (N + 1) / 2) blocks per head, those of the highest score; the first block of keys
    and the diagonal are always read."""

    density: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_real(self.density) or not 0 < self.density <= 1:
            raise ValueError(f"got density {self.density!r}; expected a fraction of the causal blocks in (0, 1].")

    def _choose(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> BlockIndex:
        score = self._score(query, keys, scaling, layer)  # (heads, N, N)
        n = score.shape[1]
        causal, always = causal_blocks(n, score.device), always_read(n, score.device)
        score = score.masked_fill(~causal, -torch.inf).masked_fill(always, torch.inf).flatten(1)
        count = max(round(self.density * n * (n + 1) / 2), 2 * n - 1)  # `always` has 2 n − 1 blocks
        kept = score.argsort(dim=1, descending=True, stable=True)[:, :count]
        reads = torch.zeros_like(score, dtype=torch.bool).scatter(1, kept, True).view(-1, n, n)
        return BlockIndex(reads, query.shape[1], self.block_size, is_checked=True)

    @abstractmethod
    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        """Return the score of each block; high = read."""


@dataclass(frozen=True, kw_only=True)
class SinkAndWindow(OfDensity):
    """Read the first block and the nearest ones for every text. Xiao and others, StreamingLLM, 2023,
    https://arxiv.org/abs/2309.17453"""

    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        n = n_blocks(query.shape[1], self.block_size)
        return -block_distance(n, query.device).float().expand(query.shape[0], -1, -1)


@dataclass(frozen=True, kw_only=True)
class VerticalSlash(OfDensity):
    """Read the vertical and slash lines to which the last queries attend most, equally many for every head and text.
    Jiang and others, MInference, 2024, https://arxiv.org/abs/2407.02490

    Deviation: one budget for both kinds of line, and each line is one block wide.
    """

    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        columns, diagonals = line_masses(query, keys, scaling, self.block_size)
        distance = block_distance(columns.shape[1], query.device).clamp(min=0)
        return torch.maximum(columns[:, None, :], diagonals[:, distance])


@dataclass(frozen=True, kw_only=True)
class RandomBlocks(OfDensity):
    """Read random blocks, different in each layer and head: the random baseline of a rule."""

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("seed", self.seed, least=0)

    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        n = n_blocks(query.shape[1], self.block_size)
        generator = torch.Generator().manual_seed(1000 * self.seed + layer)
        return torch.rand(query.shape[0], n, n, generator=generator).to(query.device)
