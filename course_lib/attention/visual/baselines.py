"""Baselines of an importance: each of its two parts, random scores, and equal scores.

Dimension key: B canvases, N patches.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.visual.importance import TokenScore
from course_lib.settings import check_seed


@dataclass(frozen=True)
class AttentionReceived(TokenScore):
    """Σ_i A_ij: the attention that all patches pay to this patch."""

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        return attention.sum(dim=1)


@dataclass(frozen=True)
class EntropyAlone(TokenScore):
    """softmax(H)_i, which needs no model. Equal entropies, such as those of blank patches, rank row by row."""

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        return entropy.softmax(dim=1)


@dataclass(frozen=True)
class RandomTokens(TokenScore):
    """Random tokens, different for each image: the random baseline of a score."""

    seed: int = 0

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(entropy.shape, generator=generator).to(entropy.device)


@dataclass(frozen=True)
class AllAlike(TokenScore):
    """1 for every token; with as many cells as tokens to keep, this is average pooling."""

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        return torch.ones_like(entropy)
