"""Straight-through. Bengio, Léonard, Courville, 2013, https://arxiv.org/abs/1308.3432"""

import torch

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem


class StraightThrough(Estimator):
    """Σ_i L'(π_D o_D)·(π_i o_i) ∇π_i, plus the multiplier's gradient: the backward pass uses the mean for the draw.

    Every expert's output is multiplied by the only slope that is computed, which is exact if L is linear.
    """

    experts_run = "all"

    def draws(self, problem: Problem) -> Draws:
        prior = problem.prior
        slopes = problem.slopes(prior)
        projected = torch.einsum("ndv,niv,ni->ndi", slopes, problem.outputs, prior)
        own = problem.multiplier_slopes(prior)[..., None] * problem.prior_slopes()
        return Draws(prior, projected @ problem.prior_slopes() + own)
