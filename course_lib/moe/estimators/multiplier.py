"""The multiplier's gradient. Fedus, Zoph, Shazeer, Switch Transformers, 2021, https://arxiv.org/abs/2101.03961"""

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem


class Multiplier(Estimator):
    """L'(π_D o_D)·o_D ∇π_D: the gradient of backpropagation.

    Its mean is ∇1; it ignores that the draw itself depends on the router (∇0).
    """

    def draws(self, problem: Problem) -> Draws:
        slope = problem.multiplier_slopes(problem.prior)
        return Draws(problem.prior, slope[..., None] * problem.prior_slopes())
