"""The exercises on losses, loads, mixtures and gradients: worked by hand, and against what the library knows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.checking.judge import judge
from course_lib.lessons.moe.exercises.balance import BALANCE
from course_lib.lessons.moe.exercises.estimate import ESTIMATE
from course_lib.lessons.moe.exercises.jacobs import JACOBS
from course_lib.lessons.moe.exercises.load import LOAD
from course_lib.moe.choice import among
from course_lib.moe.estimators.estimator import Problem
from course_lib.moe.estimators.sparsemixer import SparseMixer
from course_lib.moe.losses import balance

EXERCISES = (BALANCE, LOAD, JACOBS, ESTIMATE)


def by_hand(exercise):
    case = exercise.cases(torch.Generator().manual_seed(0))[0]
    assert "by hand" in case.name
    return exercise.reference(*case.arguments)


def test_balance_by_hand():
    """P is 3/4 and 1/4, f is 1 and 0: 2 (3/4) 0.2 of each layer; the slope in a logit is 0.1 · 3/16."""
    loss, gradient = by_hand(BALANCE)
    assert loss.item() == pytest.approx(0.3)
    of_a_layer = torch.tensor([[0.01875, -0.01875]] * 2)
    torch.testing.assert_close(gradient, torch.stack([of_a_layer, -of_a_layer]))


def test_load_by_hand():
    right = torch.tensor([0.0227501, 0.5, 0.8413447])  # of the table of the normal distribution
    torch.testing.assert_close(by_hand(LOAD), right, rtol=0, atol=1e-6)


def test_jacobs_by_hand():
    error, responsibilities = by_hand(JACOBS)
    assert error.item() == pytest.approx(-math.log(0.8))
    torch.testing.assert_close(responsibilities, torch.tensor([[0.25, 0.75]]))


def test_estimate_by_hand():
    """2 dL/dm π_D (e_D − π): 3, 4 and 12 times the row."""
    right = torch.tensor([[-1.5, 2.25, -0.75], [-2.0, 3.0, -1.0], [6.0, -3.0, -3.0]])
    torch.testing.assert_close(by_hand(ESTIMATE), right)


def test_two_layers_on_different_halves_are_not_balanced():
    """Each sends all to two of four experts: N / k = 2 of either, and 1 where layers are averaged first."""
    logits = torch.tensor([[40.0, 40.0, 0.0, 0.0], [0.0, 0.0, 40.0, 40.0]])[:, None].expand(-1, 6, -1)
    chosen = torch.tensor([[0, 1], [2, 3]])[:, None].expand(-1, 6, -1)
    assert BALANCE.reference(logits, chosen, 1.0)[0].item() == pytest.approx(2.0)
    averaged_first = next(m for m in BALANCE.mistakes if m.name == "averaged over layers first")
    assert averaged_first.function(logits, chosen, 1.0)[0].item() == pytest.approx(1.0)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(2, 6), st.data())
def test_balance_is_the_librarys_and_its_gradient_moves_no_token_as_a_whole(layers, tokens, experts, data):
    """A number added to all logits of a token changes nothing, so each row of the gradient adds up to zero."""
    k = data.draw(st.integers(1, experts))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    logits = torch.randn(layers, tokens, experts, generator=generator, dtype=torch.float64)
    chosen = torch.rand(layers, tokens, experts, generator=generator).topk(k, dim=2).indices
    loss, gradient = BALANCE.reference(logits, chosen, 0.7)
    each = [balance(x.softmax(1), among(c, experts), 0.7) for x, c in zip(logits, chosen, strict=True)]
    # float64 throughout, but the shares of the library are float32 quotients of counts
    torch.testing.assert_close(loss, torch.stack(each).mean(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.sum(2), torch.zeros(layers, tokens, dtype=torch.float64), rtol=0, atol=1e-12)


def test_load_is_how_often_an_expert_is_in_with_new_noise_of_its_own():
    """20,000 draws: the error of a share is at most 0.5 / √20,000 = 0.0035, of five tokens √5 times that."""
    generator = torch.Generator().manual_seed(3)
    clean, noise = torch.randn(5, 6, generator=generator), torch.randn(5, 6, generator=generator)
    deviation = torch.nn.functional.softplus(noise)
    noisy = clean + torch.randn(5, 6, generator=generator) * deviation
    right = LOAD.reference(clean, noise, noisy, 2)
    for expert in range(6):
        own = clean[:, expert] + torch.randn(20_000, 5, generator=generator) * deviation[:, expert]
        rivals = noisy[:, [i for i in range(6) if i != expert]].topk(2, dim=1).values[:, 1]
        found = (own > rivals).float().mean(0).sum()
        assert found.item() == pytest.approx(right[expert].item(), abs=5 * 0.0035 * 5**0.5)


def test_the_mean_of_all_draws_is_that_of_the_estimator_as_released():
    """Every expert with both coins, weighted by how likely they are: enumeration in float64, so to rounding."""
    generator = torch.Generator().manual_seed(5)
    logits, outputs, target = (torch.randn(*shape, generator=generator).double() for shape in ((5,), (5, 3), (3,)))
    problem = Problem(logits[None], outputs[None], lambda y: (y - target).square().sum(-1) / 2)
    drawn, coin = torch.arange(5).repeat(2), torch.arange(10) < 5
    rows = ESTIMATE.reference(logits.expand(10, -1), drawn, coin, outputs[drawn], target.expand(10, -1))
    mean = (logits.softmax(0)[drawn, None] / 2 * rows).sum(0)
    torch.testing.assert_close(mean, SparseMixer(argmax_whole=True).draws(problem).mean()[0], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(mean, problem.gradient()[0], rtol=1e-3)
    halved_too = next(m for m in ESTIMATE.mistakes if m.name == "most likely expert halved").function
    rows = halved_too(logits.expand(10, -1), drawn, coin, outputs[drawn], target.expand(10, -1))
    mean = (logits.softmax(0)[drawn, None] / 2 * rows).sum(0)
    torch.testing.assert_close(mean, problem.gradient()[0], rtol=1e-12, atol=1e-14)


def test_what_is_far_is_judged_as_exactly_as_its_exponents_are():
    """The squares of the products' way cancel; an error of one in a thousand is refused on every case all the same."""
    for factor, state in ((1 + 1e-6, "right"), (1 + 1e-3, "wrong")):

        def scaled(prior, outputs, target, factor=factor):
            error, responsibilities = JACOBS.reference(prior, outputs, target)
            return error * factor, responsibilities

        verdict = judge(JACOBS, scaled)
        assert verdict.state == state
        assert state == "right" or all(verdict.differences)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_nothing_that_was_given_is_changed(exercise):
    for case in exercise.cases(torch.Generator().manual_seed(0)):
        tensors = [x for x in case.arguments if isinstance(x, torch.Tensor)]
        before = [x.clone() for x in tensors]
        for function in (exercise.reference, exercise.library):
            function(*case.arguments)
        assert all(map(torch.equal, tensors, before)), case.name
