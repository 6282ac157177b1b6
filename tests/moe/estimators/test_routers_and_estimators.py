"""The routers of SparseMixer have, draw by draw, the gradient that their estimators enumerate."""

import pytest
import torch

from course_lib.moe.estimators.problems import network
from course_lib.moe.estimators.sparsemixer import SparseMixer as First
from course_lib.moe.estimators.sparsemixer import SparseMixerV2 as Second
from course_lib.moe.routers.sparsemixer import SparseMixer
from course_lib.moe.routers.sparsemixer_v2 import SparseMixerV2

NO_LIMIT = 1e9  # no expert lies too far below the best to be drawn
N_PROBLEMS, N_DRAWS = 6, 400


@pytest.mark.parametrize(
    ("router", "estimator", "low"),
    [(SparseMixer(eps=NO_LIMIT), First(), 1 / 2), (SparseMixerV2(k=1, eps=NO_LIMIT), Second(), 1 / 3)],
    ids=["v1", "v2"],
)
def test_every_draw_has_the_enumerated_gradient(router, estimator, low, generator):
    """Cases are the experts with the whole multiplier, then the experts with the scaled one."""
    problem = network(N_PROBLEMS, generator)
    n_experts, prior = problem.logits.shape[1], problem.prior
    draws, found, counts = estimator.draws(problem), [], torch.zeros(N_PROBLEMS, 2 * n_experts)
    for _ in range(N_DRAWS):
        logits = problem.logits.clone().requires_grad_()
        routing = router.route(logits, generator=generator)
        drawn = routing.keep.double().argmax(dim=1)
        output = (routing.weights[..., None] * problem.outputs).sum(dim=1)
        (gradient,) = torch.autograd.grad(problem.loss(output[:, None]).sum(), logits)
        factor = routing.weights.detach().sum(dim=1) / prior.gather(1, drawn[:, None])[:, 0]
        case = drawn + n_experts * (factor < (1 + low) / 2)
        counts[torch.arange(N_PROBLEMS), case] += 1
        expected = draws.gradient[torch.arange(N_PROBLEMS), case]
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)  # float64
        found.append(gradient)
    often = N_DRAWS * draws.probability
    assert ((counts > 0) | (often < 10)).all()  # e^-10: whatever should have come up did
    assert (counts[draws.probability == 0] == 0).all()  # the most likely expert is never scaled down
    assert ((counts - often).abs() < 5 * (often + 1).sqrt()).all()
