"""REINFORCE. Williams, "Simple Statistical Gradient-Following Algorithms", 1992, https://doi.org/10.1007/BF00992696"""

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem


class Reinforce(Estimator):
    """(L(π_D o_D) − b) ∇log π_D, with b = 0, plus the multiplier's own gradient.

    It is unbiased, since Σ π_i ∇log π_i L_i = ∇0, and noisy, since the full loss is a factor of the gradient.
    """

    def draws(self, problem: Problem) -> Draws:
        return with_baseline(problem, 0.0)


class ReinforceWithBaseline(Estimator):
    """b = Σ π_i L(π_i o_i), the expected loss: the mean is the same, as Σ π_i ∇log π_i = 0, but there is less noise."""

    experts_run = "all"

    def draws(self, problem: Problem) -> Draws:
        expected = (problem.prior * problem.losses(problem.prior)).sum(dim=1, keepdim=True)
        return with_baseline(problem, expected)


def with_baseline(problem: Problem, baseline: Float[Tensor, "n 1"] | float) -> Draws:
    """Return the sum of both parts."""
    surprise = (problem.losses(problem.prior) - baseline) / problem.prior
    weight = surprise + problem.multiplier_slopes(problem.prior)
    return Draws(problem.prior, weight[..., None] * problem.prior_slopes())
