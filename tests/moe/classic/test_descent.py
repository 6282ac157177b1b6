"""Mixtures and perceptrons by gradient descent: a step by hand, seeds, and what the vowels show."""

import pytest
import torch

from course_lib.moe.classic.descent import Samples, report, train, vowel_samples
from course_lib.moe.classic.learners import Mixture, Perceptron

ONE = Samples(torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([0]))  # an input that is the bias alone


class Fixed(Mixture):
    """Two experts that say 1 and 3, and a gate that leaves both a half."""

    def start(self, n_inputs, n_outputs, seeds):
        return torch.tensor([[[[1.0]], [[3.0]]]]), torch.zeros(1, 2, 1)


@pytest.mark.parametrize(
    ("error", "experts"),
    [
        ("cooperative", [1.0, 3.0]),  # the blend is right: nobody moves
        ("competitive", [1.5, 2.5]),  # −2 · ½ · (2 − 1), half of it
        ("mixture", [1.25, 2.75]),  # −½ · (2 − 1), half of it
    ],
)
def test_a_step_by_hand(error, experts):
    """At a rate of ½. Both experts are as far from 2, so no error moves the gate."""
    trained = train(Fixed(error, n_experts=2), ONE, [0], epochs=1, rate=0.5)
    assert trained.weights[0].flatten().tolist() == experts
    assert trained.weights[1].flatten().tolist() == [0.0, 0.0]


def test_a_perceptron_by_hand():
    """Hidden σ(ln 3) = ¾; then σ(4 · ¾ − 3) = ½ and σ(0 · ¾ + ln 3) = ¾."""
    ln3 = torch.tensor(3.0).log().item()
    weights = torch.tensor([[[ln3, 0.0]]]), torch.tensor([[[4.0, -3.0], [0.0, ln3]]])
    inputs, targets = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.75]])
    learner = Perceptron(n_hidden=1)
    torch.testing.assert_close(learner.answer(weights, inputs), torch.tensor([[[0.5, 0.75]]]))
    torch.testing.assert_close(learner.error(weights, inputs, targets), torch.tensor([[0.25]]))


@pytest.mark.parametrize("learner", [Mixture(n_experts=3), Perceptron(5, "tanh")])
def test_a_learner_knows_of_no_other(learner):
    """Trained with others, or alone: the same, up to float32 sums in another order, over a few steps."""
    samples, _ = vowel_samples()
    together, alone = (train(learner, samples, seeds, epochs=20) for seeds in ([7, 3, 5], [3]))
    for many, one in zip(together.weights, alone.weights, strict=True):
        torch.testing.assert_close(many[1], one[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together.accuracy[:, 1:2], alone.accuracy, atol=0.01, rtol=0)


def test_vowels_are_standardised_by_what_is_trained_on():
    training, test = vowel_samples()
    assert training.inputs.shape == (408, 3)
    torch.testing.assert_close(training.inputs.mean(dim=0), torch.tensor([0.0, 0.0, 1.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(training.inputs.std(dim=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5, rtol=0)
    assert test.inputs[:, :2].mean(dim=0).abs().max() > 0.01  # by others' mean, so not exactly 0
    assert training.targets.sum(dim=1).eq(1).all()


def test_cooperation_and_competition_differ_in_what_one_expert_can_do():
    """All errors classify as well; of cooperating experts the likeliest alone does not. Five starts each."""
    samples, test = vowel_samples()
    reports = {
        error: report(train(Mixture(error), samples, range(5), 300), test) for error in ("cooperative", "mixture")
    }
    for measured in reports.values():
        assert measured.accuracy.mean() > 0.88
    blended, alone = reports["cooperative"].accuracy.mean(), reports["cooperative"].likeliest_accuracy.mean()
    assert alone < blended - 0.1
    assert (reports["mixture"].likeliest_accuracy - reports["mixture"].accuracy).abs().max() < 0.02
    assert reports["mixture"].gate_entropy.mean() < 0.5 * reports["cooperative"].gate_entropy.mean()
    assert reports["mixture"].experts_used.tolist() == [2] * 5  # of four


def test_epochs_are_counted_from_the_start():
    trained = train(Mixture(), vowel_samples()[0], range(3), 120)
    for learner, epochs in enumerate(trained.epochs_to(0.85)):
        reached = trained.accuracy[:, learner] >= 0.85
        assert epochs == reached.tolist().index(True)
    assert trained.epochs_to(1.0) == [None] * 3
    assert trained.epochs_to(0.0) == [0] * 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixture("both"), "error_name='both': expected one of cooperative, competitive, mixture"),
        (lambda: Mixture(n_experts=1), "n_experts=1: expected at least 2"),
        (lambda: Perceptron(0), "0 hidden units of kind 'sigmoid': expected at least 1"),
        (lambda: Perceptron(hidden="relu"), "of kind 'relu': expected .* sigmoid or tanh"),
        (lambda: train(Mixture(), ONE, [], 1), "no seeds: expected one for each learner"),
        (lambda: train(Mixture(), ONE, [0], 0), "epochs=0, rate=0.5: expected at least 1 epoch"),
        (lambda: train(Mixture(), ONE, [0], 1, rate=0.0), "rate=0.0: expected .* a rate above 0"),
        (lambda: train(Fixed("competitive", 2), ONE, [0], 200, rate=9.0), "not finite after 200 epochs .* a smaller"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
