"""The predictor's loss by hand, its gradient against loops, and a training that goes on after a kill."""

import math
from dataclasses import replace

import pytest
import torch

from course_lib.contextual.predictor.checkpoint import Run
from course_lib.contextual.predictor.collect import Collected
from course_lib.contextual.predictor.training import (
    PredictorSchedule,
    train_predictor,
    train_predictors,
    weighted_loss,
)
from course_lib.contextual.predictor.two_layer import Predictor

SCHEDULE = PredictorSchedule(epochs=3, batch=16, rate=1e-2, seed=1)


def data(n=37, width=5, n_neurons=11, seed=0):
    """A third of the neurons or so are active, where a hidden linear map says so."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=generator)
    return x, x @ torch.randn(width, n_neurons, generator=generator) > 1.0


def fresh(rank=3, seed=0):
    return Predictor(5, rank, 11, torch.Generator().manual_seed(seed))


def test_the_loss_by_hand():
    # w = 1/4 + 0.005; −log σ(0) = −log(1 − σ(0)) = log 2, so that 1 + 3 w of them stand over 4
    loss = weighted_loss(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
    assert loss.item() == pytest.approx((1 + 3 * 0.255) / 4 * math.log(2), rel=1e-6)
    large = weighted_loss(torch.tensor([[1e4, -1e4]]), torch.tensor([[True, False]]))
    assert large.item() == 0


def test_the_gradient_against_loops():
    x, labels = data(n=6)
    predictor, share = fresh(), labels.double().mean().item() + 0.005
    weighted_loss(predictor(x), labels).backward()
    into, out = predictor.into.weight.detach().double(), predictor.out.weight.detach().double()
    of_into, of_out = torch.zeros_like(into), torch.zeros_like(out)
    for token, active in zip(x.double(), labels, strict=True):
        middle = [sum(into[r, d] * token[d] for d in range(5)) for r in range(3)]
        for neuron in range(11):
            logit = sum(out[neuron, r] * middle[r] for r in range(3))
            y = float(active[neuron])
            slope = (y * (1 - share) + share) * (1 / (1 + math.exp(-logit)) - y) / labels.numel()
            for r in range(3):
                of_out[neuron, r] += slope * middle[r]
                of_into[r] += slope * out[neuron, r] * token
    # float32 against float64, sums of some hundred terms
    torch.testing.assert_close(predictor.out.weight.grad.double(), of_out, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(predictor.into.weight.grad.double(), of_into, rtol=1e-4, atol=1e-7)


def test_nothing_stands_between_the_two_matrices():
    predictor, (x, _) = fresh(), data()
    torch.testing.assert_close(predictor(-2 * x), -2 * predictor(x))
    assert predictor.n_bytes == 4 * (5 * 3 + 3 * 11)


def test_it_learns_what_a_linear_map_says():
    x, labels = data(n=200)
    predictor = fresh(rank=5)
    losses = train_predictor(predictor, x, labels, replace(SCHEDULE, epochs=60))
    assert len(losses) == 60 * 13  # 12 batches of 16 and one of 8
    assert losses[-1] < losses[0] / 3
    found = predictor(x) > 0
    assert (found & labels).sum() / labels.sum() > 0.95
    torch.manual_seed(5)
    assert train_predictor(fresh(rank=5), x, labels, replace(SCHEDULE, epochs=1)) == losses[:13]


def test_a_training_that_was_killed_goes_on_with_the_same_losses(tmp_path, monkeypatch):
    x, labels = data()
    whole, killed, resumed = fresh(), fresh(), fresh()
    expected = train_predictor(whole, x, labels, SCHEDULE)
    update, calls = Run.update, []

    def stop(self, *arguments):
        calls.append(1)
        if len(calls) == 5:  # in the second epoch of three steps
            raise KeyboardInterrupt
        return update(self, *arguments)

    monkeypatch.setattr(Run, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        train_predictor(killed, x, labels, SCHEDULE, tmp_path / "state")
    monkeypatch.undo()
    assert train_predictor(resumed, x, labels, SCHEDULE, tmp_path / "state") == expected
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert train_predictor(fresh(), x, labels, SCHEDULE, tmp_path / "state") == expected  # nothing is left to do


OTHERS = {  # name → predictor, data and schedule of another training of the same sizes
    "schedule": (fresh(), data(), replace(SCHEDULE, batch=8)),
    "first weights": (fresh(seed=9), data(), SCHEDULE),
    "another block's inputs": (fresh(), (data(seed=1)[0], data()[1]), SCHEDULE),
    "another block's labels": (fresh(), (data()[0], data(seed=1)[1]), SCHEDULE),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_file_of_another_training_is_refused_before_any_step(name, tmp_path):
    path = tmp_path / "state"
    train_predictor(fresh(), *data(), SCHEDULE, path)
    content, (predictor, (x, labels), schedule) = path.read_bytes(), OTHERS[name]
    before = [weight.clone() for weight in predictor.parameters()]
    with pytest.raises(ValueError, match="another run"):
        train_predictor(predictor, x, labels, schedule, path)
    assert all(torch.equal(a, b) for a, b in zip(before, predictor.parameters(), strict=True))
    assert path.read_bytes() == content


def test_a_loss_that_is_no_number_leaves_the_predictor_as_it_was(tmp_path):
    x, labels = data()
    path, schedule = tmp_path / "state", replace(SCHEDULE, epochs=1)
    train_predictor(fresh(), x, labels, schedule, path)
    before, predictor = path.read_bytes(), fresh()
    with torch.no_grad():
        predictor.out.weight[0, 0] = math.inf
    held = [weight.clone() for weight in predictor.parameters()]
    with pytest.raises(ValueError, match="step 0; expected a number"):
        train_predictor(predictor, x, labels, schedule)
    assert all(torch.equal(a, b) for a, b in zip(held, predictor.parameters(), strict=True))
    assert path.read_bytes() == before


def test_one_predictor_a_block_reads_what_the_lookahead_says():
    (first, labels), (second, others) = data(seed=0), data(seed=1)
    held = Collected([first, second], [labels, others], lookahead=1)
    predictors = train_predictors(held, 3, SCHEDULE)
    alone = Predictor(5, 3, 11, torch.Generator().manual_seed(SCHEDULE.seed + 1))
    train_predictor(alone, first, others, SCHEDULE)
    assert torch.equal(predictors[1].out.weight, alone.out.weight)
    assert not predictors[0].out.weight.requires_grad


def test_bad_input():
    x, labels = data()
    for given in ((x[:, :4], labels), (x, labels[:, :3]), (x[:5], labels), (x[:0], labels[:0])):
        with pytest.raises(ValueError, match="Collect both from one model"):
            train_predictor(fresh(), *given, SCHEDULE)
    x[3, 2] = math.nan
    with pytest.raises(ValueError, match="no numbers"):
        train_predictor(fresh(), x, labels, SCHEDULE)
    with pytest.raises(ValueError, match="rank 0"):
        fresh(rank=0)
    with pytest.raises(ValueError, match="got epochs 0; expected a whole number, 1 or more"):
        PredictorSchedule(epochs=0)
