"""Estimators of a router's gradient: by hand, exact where theory says so, against sampling and transformers' PhiMoE."""

import math

import pytest
import torch
from transformers.models.phimoe.modeling_phimoe import sparsemixer

from course_lib.moe.estimators.estimator import Problem
from course_lib.moe.estimators.multiplier import Multiplier
from course_lib.moe.estimators.problems import network, polynomial
from course_lib.moe.estimators.reinforce import Reinforce, ReinforceWithBaseline
from course_lib.moe.estimators.sparsemixer import SparseMixer, SparseMixerV2
from course_lib.moe.estimators.straight_through import StraightThrough
from course_lib.moe.estimators.table import every_estimator, measure

EXACT = 1e-12  # relative: what float64 leaves of a sum of a dozen terms, with room
ALL = pytest.mark.parametrize("estimator", every_estimator(), ids=lambda estimator: estimator.name)


def by_hand() -> Problem:
    """Two experts with ¾ and ¼ whose outputs are 4 and 8, so 3 and 2 once scaled; L(y) = y². ∇π_1 = (3/16)(1, −1)."""
    logits = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    return Problem(logits, torch.tensor([[[4.0], [8.0]]], dtype=torch.float64), lambda y: y.square().sum(dim=-1))


@pytest.mark.parametrize(
    ("estimator", "on_first", "mean"),
    [
        # When expert 1 is drawn: the multiplier's slope is 2·3·4 = 24, that of 2 is 2·2·8 = 32.
        (Multiplier(), [24.0], 0.75 * 24 - 0.25 * 32),
        (Reinforce(), [9 / 0.75 + 24], (9 - 4) + 10),
        (ReinforceWithBaseline(), [(9 - 7.75) / 0.75 + 24], (9 - 4) + 10),
        # Slope 6 on both scaled outputs, 3 and 2, moves ∇π_1 by 18 − 12; of expert 2 it is 4·3 − 4·2.
        (StraightThrough(), [6 + 24], 0.75 * 6 + 0.25 * 4 + 10),
        # Whole 2·24, at half 2·12. For a quadratic loss the mean is the true gradient, 5 + 10.
        (SparseMixer(argmax_whole=False), [48.0, 24.0], 15.0),
        (SparseMixer(), [48.0, 24.0], 0.75 * 48 - 0.25 * (64 + 32) / 2),
        (SparseMixerV2(argmax_whole=False), [24.0, 8.0], 5.0),
        (SparseMixerV2(), [24.0, 8.0], 0.75 * 24 - 0.25 * (32 / 4 + 32 / 3 * 3 / 4)),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_two_experts_by_hand(estimator, on_first, mean):
    """In units of ∇π_1 = −∇π_2."""
    problem = by_hand()
    unit = torch.tensor([3 / 16, -3 / 16], dtype=torch.float64)
    draws = estimator.draws(problem)
    for case, weight in enumerate(on_first):
        torch.testing.assert_close(draws.gradient[0, 2 * case], weight * unit)
    torch.testing.assert_close(draws.mean()[0], mean * unit)
    assert draws.probability.sum().item() == pytest.approx(1)
    torch.testing.assert_close(problem.gradient()[0], 15 * unit)
    torch.testing.assert_close(problem.gradient("choice")[0], 5 * unit)


@pytest.mark.parametrize("make", [lambda g: polynomial(20, 3, g), lambda g: network(20, g)], ids=["cubic", "network"])
def test_the_gradient_is_that_of_the_expected_loss(make, generator):
    problem = make(generator)
    logits = problem.logits.clone().requires_grad_()
    prior = logits.softmax(dim=1)
    expected = (prior * problem.loss(prior[..., None] * problem.outputs)).sum()
    torch.testing.assert_close(problem.gradient(), torch.autograd.grad(expected, logits)[0])
    fixed = prior.detach()
    choice = (logits.softmax(dim=1) * problem.loss(fixed[..., None] * problem.outputs)).sum()
    torch.testing.assert_close(problem.gradient("choice"), torch.autograd.grad(choice, logits)[0])


def bias(estimator, problem) -> float:
    """The largest over problems, relative."""
    gradient = problem.gradient(estimator.target)
    return ((estimator.draws(problem).mean() - gradient).norm(dim=1) / gradient.norm(dim=1)).max().item()


@pytest.mark.parametrize(
    ("estimator", "degree"),
    [
        (SparseMixer(argmax_whole=False), 2), (SparseMixerV2(argmax_whole=False), 3), (SparseMixerV2(), 1),
        (SparseMixer(), 1), (StraightThrough(), 1), (Reinforce(), 4), (ReinforceWithBaseline(), 4),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)  # fmt: skip
def test_exact_up_to_a_degree(estimator, degree, generator):
    """And no further, but for REINFORCE, which has no such limit."""
    for each in range(1, degree + 1):
        assert bias(estimator, polynomial(50, each, generator)) < EXACT
    if degree < 4:
        assert bias(estimator, polynomial(50, degree + 1, generator)) > 1e-2


@ALL
def test_the_enumeration_is_what_sampling_gives(estimator, generator):
    """The mean of 20000 draws lies within five standard errors; the deviation within a tenth."""
    problem = network(3, generator)
    draws = estimator.draws(problem)
    torch.testing.assert_close(draws.probability.sum(dim=1), torch.ones(3, dtype=torch.float64))
    index = draws.probability.multinomial(20_000, replacement=True, generator=generator)
    sampled = torch.take_along_dim(draws.gradient, index[..., None], dim=1)
    error = (sampled.mean(dim=1) - draws.mean()).norm(dim=1)
    assert (error <= 5 * draws.deviation() / 20_000**0.5 + EXACT).all()
    spread = (sampled - sampled.mean(dim=1, keepdim=True)).square().sum(dim=2).mean(dim=1).sqrt()
    torch.testing.assert_close(spread, draws.deviation(), rtol=0.1, atol=EXACT)


@ALL
def test_no_estimator_moves_all_logits_alike(estimator, generator):
    """A softmax does not see it, so each gradient adds up to 0."""
    gradient = estimator.draws(network(20, generator)).gradient
    assert gradient.sum(dim=2).abs().max() < 1e-10 * gradient.abs().max()


def test_transformers_has_the_second_version_as_released(generator):
    """Of each token's draw: the multiplier, and the gradient that a slope of it gives. It writes ⅓ as 0.3333."""
    problem = polynomial(1, 1, generator)
    n_tokens, n_experts = 400, problem.logits.shape[1]
    torch.manual_seed(0)  # transformers draws from the global generator
    logits = problem.logits.expand(n_tokens, -1).clone().requires_grad_()
    multiplier, expert = sparsemixer(logits, jitter_eps=50.0, training=True, top_k=2)  # so large that it masks none
    slope = problem.multiplier_slopes(problem.prior)[0]  # of a linear loss: the same at every point
    first, chosen = multiplier[:, 0], expert[:, 0]
    gradient = torch.autograd.grad((first * slope[chosen]).sum(), logits)[0]
    factor = first.detach() / problem.prior[0, chosen]
    whole = (factor - 1).abs() < 1e-3
    assert ((factor[~whole] - 1 / 3).abs() < 1e-4).all()
    draws = SparseMixerV2().draws(problem)
    torch.testing.assert_close(gradient, draws.gradient[0, chosen + n_experts * ~whole], rtol=1e-9, atol=1e-12)
    cases = torch.bincount(chosen + n_experts * ~whole, minlength=2 * n_experts) / n_tokens
    error = (draws.probability[0] * (1 - draws.probability[0]) / n_tokens).sqrt()
    assert ((cases - draws.probability[0]).abs() <= 5 * error).all()  # standard errors; the argmax is never scaled
    best = problem.logits.argmax()
    assert cases[n_experts + best] == 0 < cases[best]


def test_the_table_is_measured_in_seconds_and_orders_the_estimators():
    rows = {row.name: row for row in measure(network(200, torch.Generator().manual_seed(0)), (1, 100, 10_000))}
    assert len(rows) == len(every_estimator()) >= 10
    assert rows["Exact"][3:] == (0.0, 0.0, (0.0, 0.0, 0.0))
    assert rows["Reinforce"].bias < EXACT < rows["SparseMixer v1, every draw"].bias
    assert rows["SparseMixer v1, every draw"].bias < rows["SparseMixer v1, as released"].bias < rows["Multiplier"].bias
    assert rows["SparseMixer v1, as released"].deviation < rows["Reinforce"].deviation
    for row in rows.values():  # a median of roots is no root of medians, but it lies between its parts
        one, hundred, many = row.errors
        assert one >= hundred >= many >= row.bias * (1 - 1e-9)
    # With one token the noise of REINFORCE is worse than any bias; with many only bias counts.
    assert rows["Multiplier"].errors[0] < rows["Reinforce"].errors[0]
    assert rows["Reinforce"].errors[2] < rows["SparseMixer v1, as released"].errors[2] < rows["Multiplier"].errors[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: polynomial(3, 0, g), "degree=0: expected at least 1, a linear loss"),
        (lambda g: network(0, g), "n_problems=0: expected at least 1"),
        (lambda g: measure(network(2, g), (10, 0)), r"tokens=\(10, 0\): expected numbers of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, message, generator):
    with pytest.raises(ValueError, match=message):
        call(generator)
