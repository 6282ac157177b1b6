"""The multiplier alone. Fedus, Zoph, Shazeer, Switch Transformers, 2021, https://arxiv.org/abs/2101.03961"""

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem


class Multiplier(Estimator):
    """L'(π_D o_D)·o_D ∇π_D: what backpropagation gives.

    Its mean is ∇1; that the draw itself depends on the router (∇0) is ignored.
    """

    def draws(self, problem: Problem) -> Draws:
        slope = problem.multiplier_slopes(problem.prior)
        return Draws(problem.prior, slope[..., None] * problem.prior_slopes())
