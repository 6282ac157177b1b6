"""Measure the importance of visual tokens before any question is read. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B canvases, H heads, N patches.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from course_lib.attention.checks import check_finite
from course_lib.attention.visual.entropy import patch_entropy
from course_lib.attention.visual.model import SmallVLM
from course_lib.settings import is_real


class Evidence(NamedTuple):
    """Measurements on images: the attention of the encoder's last layer, mean over heads, and entropies in bits."""

    attention: Float[Tensor, "B N N"]  # row i: the attention of patch i to each patch
    entropy: Float[Tensor, "B N"]


def look(model: SmallVLM, images: UInt8[Tensor, "B P P"]) -> Evidence:
    """Encode images once and return the measurements."""
    return Evidence(model.encoder_attention(images).mean(dim=1), patch_entropy(images))


class EmptyContext(ValueError):
    """Raised for an image in which no patch receives enough attention, so that K is empty."""


class TokenScore(ABC):
    """The base class of all scores: high = keep."""

    def __call__(self, evidence: Evidence) -> Float[Tensor, "B N"]:
        """Return one score per visual token.

        Raises:
            ValueError: attention is not square, has other patches than the entropy, or one of them has NaN.
        """
        attention, entropy = evidence
        n = entropy.shape[-1]
        if attention.shape != (len(entropy), n, n):
            raise ValueError(
                f"got attention {tuple(attention.shape)} and entropy {tuple(entropy.shape)}; expected (B, N, N) and "
                "(B, N), of the same canvases: take both from `look`."
            )
        check_finite("attention and entropy", attention, entropy)
        return self._score(attention.float(), entropy.float())

    @abstractmethod
    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Compute the score; high = keep."""


def looked_to(attention: Float[Tensor, "B N N"], t: float) -> Bool[Tensor, "B N"]:
    """Return K = {j : Σ_i A_ij > τ}, τ = t · (1/N) Σ_i Σ_j A_ij: patches with more than t times the mean (1, 2).

    Raises:
        EmptyContext: there is an image without such a patch.
    """
    received = attention.sum(dim=1)  # (B, N)
    keep = received > t * received.mean(dim=1, keepdim=True)
    if not keep.any(dim=1).all():
        most = (received.amax(dim=1) / received.mean(dim=1)).min().item()
        raise EmptyContext(
            f"got t={t}; in an image no patch gets more than {most:.4g} times the mean attention, so that none is "
            "left to say what matters. Take a smaller t."
        )
    return keep


@dataclass(frozen=True)
class Importance(TokenScore):
    """I_i = Σ_{k∈K} A_ki + α softmax(H)_i (equation 4).

    The patches to which many others attend vote by their own attention; patches with many grey levels get more. Rows of
    A sum to 1, so the first part sums to |K| over the image, the second to α.

    Deviation: α ≥ 0. The public code also tries negative values, with which an importance can be negative, and then it
    cannot be the weight of a mean.

    Args:
        t: a patch is in K if it receives more than t times the mean attention.
        alpha: the weight of entropy.
    """

    t: float = 1.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not (is_real(self.t) and is_real(self.alpha) and self.t >= 0 and 0 <= self.alpha < float("inf")):
            raise ValueError(f"got t={self.t!r}, alpha={self.alpha!r}; expected numbers of 0 or more.")

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        asked = looked_to(attention, self.t).float()
        return torch.einsum("bk,bki->bi", asked, attention) + self.alpha * entropy.softmax(dim=1)
