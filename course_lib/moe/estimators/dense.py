"""A dense mixture. Jacobs, Jordan, Nowlan, Hinton, 1991, https://doi.org/10.1162/neco.1991.3.1.79"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.estimators.estimator import Draws, Estimator, Problem


class Exact(Estimator):
    """∇0 + ∇1: the loss of every expert as if it had been sampled, weighted by its probability. It has no error."""

    experts_run = "all"

    def draws(self, problem: Problem) -> Draws:
        return _certain(problem.gradient())


class DenseSoftmax(Estimator):
    """The gradient of L(Σ π_i o_i): exact for a dense mixture of all outputs, but not for a sampled expert.

    It has no noise. If L is linear, both losses agree up to the multiplier: Σ π_i o_i here, Σ π_i² o_i for sampling.
    """

    experts_run = "all"

    def draws(self, problem: Problem) -> Draws:
        logits = problem.logits.detach().requires_grad_()
        blend = (logits.softmax(dim=-1)[..., None] * problem.outputs).sum(dim=1, keepdim=True)
        return _certain(torch.autograd.grad(problem.loss(blend).sum(), logits)[0])


def _certain(gradient: Float[Tensor, "n E"]) -> Draws:
    """Return the only case, with probability 1."""
    return Draws(gradient.new_ones(len(gradient), 1), gradient[:, None])
