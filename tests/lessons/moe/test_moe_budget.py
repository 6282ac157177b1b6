"""The open task of lesson 06 prices and trains an attempt, and the course's answers serve the notebook's cells."""

from dataclasses import replace

import pytest
import torch

from course_lib.lessons.moe import budget
from course_lib.lessons.moe.exercises.capacity import CAPACITY
from course_lib.lessons.moe.exercises.dispatch import DISPATCH
from course_lib.lessons.moe.exercises.gate import GATE
from course_lib.moe.experts import random_experts

SHORT = replace(budget.SCHEDULE, n_steps=3, batch=2, length=24, warm_up=2)


def test_a_constant_rate_rises_and_stays():
    steady = budget.ConstantRate(n_steps=100, rate=2.0, warm_up=4)
    assert [steady.rate_at(step) for step in (0, 1, 3, 4, 99)] == [0.5, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"layers": 3}, "expected a dictionary with some of"),
        ([("k", 2)], "expected a dictionary with some of"),
        ({"weights": "equal"}, "probabilities, sum to one"),
        ({"neurons": 1024}, "FLOP per byte; expected at most"),
        ({"experts": 64, "neurons": 80}, "weights; expected at most"),
    ],
)
def test_the_open_task_refuses_what_it_cannot_compare(choices, message):
    with pytest.raises(ValueError, match=message):
        budget.attempt(choices)


def test_the_usual_model_is_within_the_budget_and_an_attempt_is_measured(monkeypatch):
    used, weights = budget.priced(budget.USUAL)
    assert 0.9 * budget.BUDGET < 2 * used <= budget.BUDGET
    assert weights <= budget.MOST_WEIGHTS
    # two blocks: attention 4 · 96², two experts of 96 neurons 6 · 96², router 8 · 96, norms 2 · 96; head, last norm
    assert used == 2 * (10 * 96**2 + 8 * 96 + 2 * 96) + 256 * 96 + 96
    monkeypatch.setattr(budget, "SCHEDULE", SHORT)
    small = budget.attempt({"width": 32, "neurons": 16, "weights": "sum to one"})
    assert small.flops < 2 * used
    assert small.losses.shape == (budget.N_HELD_OUT,)
    assert "Yours is +0.000 ± 0.000" in budget.table(small, small).note


def test_the_courses_own_answers_serve_the_cells_on_real_activations(generator):
    """As where a student has not solved the exercises: each expert runs once, and slots are counted without outputs."""
    experts = random_experts(3, 16, 12, std=0.3, generator=generator)
    tokens = torch.randn(8, experts.width, generator=generator)
    weights = GATE.library(torch.randn(8, 3, generator=generator), 2)
    best, chosen = weights.topk(2, dim=1)
    _, ends, output = DISPATCH.library(tokens, chosen, best, experts.into, experts.out)
    expected = sum(weights[:, [e]] * experts.one(e, tokens) for e in range(3))
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-6)  # sums in another order
    assert ends[-1] == 16
    zeros, top1_expert = torch.zeros(2, 4, 1), torch.tensor([[0, 0, 0, 1], [2, 1, 0, 2]])
    keep, _ = CAPACITY.library(zeros, zeros, top1_expert, zeros[..., 0], 4, 1.0)
    assert keep.tolist() == [[True, False, False, True], [True, True, True, False]]
