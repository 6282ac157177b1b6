"""SparseMixer, Liu and others, 2023, https://arxiv.org/abs/2310.00811, and its second version in GRIN, Liu and others,
2024, https://arxiv.org/abs/2409.12136

L(π_D o_D) − L(0) is an integral of slopes, which a quadrature rule approximates from one or two of them. The point is
random, through a factor on the multiplier, so a step still computes one expert at one point. L(0) is the baseline.

    v1  midpoint rule: L(m) − L(0) ≈ m L'(m/2), exact up to quadratic losses
    v2  Heun's third-order rule: L(m) − L(0) ≈ m (¾ L'(m/3) + ¼ L'(m)), exact up to cubic losses

As released, the most likely expert is never scaled down. For this expert the rule has the wrong slope.

Dimension key: n problems, E experts, S draws.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem
from course_lib.settings import check_flag


@dataclass(frozen=True)
class SparseMixer(Estimator):
    """v1: 2 L'(f π_D o_D)·o_D ∇π_D, where f is 1 or ½, each with probability ½.

    The mean over f is L'(m) + L'(m/2) for m = π_D: the first term is ∇1, the second is the midpoint rule for ∇0.
    """

    argmax_whole: bool = True  # as released; False: every draw may be scaled down, as the rule is derived

    def __post_init__(self) -> None:
        check_flag("argmax_whole", self.argmax_whole)

    @property
    def name(self) -> str:
        return f"SparseMixer v1, {'as released' if self.argmax_whole else 'every draw'}"

    @classmethod
    def variants(cls) -> list[Estimator]:
        return [cls(argmax_whole=False), cls(argmax_whole=True)]

    def draws(self, problem: Problem) -> Draws:
        whole = _whole_share(problem, 0.5, self.argmax_whole)
        return _two_points(problem, whole, factor=0.5, gain=2.0)


@dataclass(frozen=True)
class SparseMixerV2(Estimator):
    """v2: L'(f π_D o_D)·o_D ∇π_D, where f is 1 with probability ¼ and ⅓ otherwise: Heun's rule for ∇0.

    Deviation from the loss that is trained: the multiplier's own gradient ∇1 is left out, as in the paper.
    """

    target = "choice"
    argmax_whole: bool = True  # as released; False: every draw may be scaled down, as the rule is derived

    def __post_init__(self) -> None:
        check_flag("argmax_whole", self.argmax_whole)

    @property
    def name(self) -> str:
        return f"SparseMixer v2, {'as released' if self.argmax_whole else 'every draw'}"

    @classmethod
    def variants(cls) -> list[Estimator]:
        return [cls(argmax_whole=False), cls(argmax_whole=True)]

    def draws(self, problem: Problem) -> Draws:
        whole = _whole_share(problem, 0.25, self.argmax_whole)
        return _two_points(problem, whole, factor=1 / 3, gain=1.0)


def is_argmax(logits: Float[Tensor, "n E"]) -> Bool[Tensor, "n E"]:
    """Mark the largest logit of each row; of equal logits the first."""
    return torch.arange(logits.shape[1]) == logits.argmax(dim=1, keepdim=True)


def _whole_share(problem: Problem, share: float, argmax_whole: bool) -> Float[Tensor, "n E"]:
    """Return how often the multiplier of each expert is not scaled down if the expert was sampled."""
    whole = torch.full_like(problem.prior, share)
    return whole.masked_fill(is_argmax(problem.logits), 1.0) if argmax_whole else whole


def _two_points(problem: Problem, whole: Float[Tensor, "n E"], factor: float, gain: float) -> Draws:
    """Return the cases of every expert with the full multiplier, then of every expert with the scaled multiplier."""
    points = [gain * problem.multiplier_slopes(scale * problem.prior) for scale in (1.0, factor)]
    gradient = torch.cat([slope[..., None] * problem.prior_slopes() for slope in points], dim=1)
    return Draws(torch.cat([problem.prior * whole, problem.prior * (1 - whole)], dim=1), gradient)
