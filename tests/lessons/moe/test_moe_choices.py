"""The exercises on gates and dispatch: worked examples by hand, what is free, and what the answers must have in common.

Dimension key: T tokens, E experts, k experts for each token, G groups, N tokens in each, D width, F neurons.
"""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.checking.compare import plain
from course_lib.lessons.moe.exercises.capacity import CAPACITY
from course_lib.lessons.moe.exercises.dispatch import DISPATCH
from course_lib.lessons.moe.exercises.gate import GATE
from course_lib.lessons.moe.exercises.top1 import TOP1
from course_lib.moe.choice import among
from course_lib.moe.dispatch import token_loop
from course_lib.moe.experts import random_experts


def case(exercise, at, seed=0):
    return exercise.cases(torch.Generator().manual_seed(seed))[at]


def right(exercise, at, seed=0):
    return plain(exercise.reference(*case(exercise, at, seed).arguments))


def test_the_worked_examples_give_what_their_titles_say():
    torch.testing.assert_close(right(GATE, 0), torch.tensor([[1 / 2, 1 / 4, 0, 0], [0, 3 / 16, 0, 5 / 8]]))
    weight, gradient = right(TOP1, 0)
    torch.testing.assert_close(weight, torch.tensor([1 / 2, 5 / 8]))
    torch.testing.assert_close(gradient, torch.tensor([[1, -1 / 2, -1 / 2], [5 / 8, 5 / 4, -15 / 8]]))
    token, ends, output = right(DISPATCH, 0)
    assert token.tolist() == [0, 2, 1, 0, 1, 2]
    assert ends.tolist() == [2, 3, 3, 6]
    # 0.5 · 4 · 1² + 0.25 · 1²; 0.5 · 2 · 2² + 0.5 · 4 · 2²; 0.75 · 3² + 0.25 · 4 · 3²
    torch.testing.assert_close(output, torch.tensor([[2.25, 0], [12, 0], [15.75, 0]]))
    keep, stream = right(CAPACITY, 0)
    assert [(~group).nonzero().flatten().tolist() for group in keep] == [[3, 5], [2, 5]]
    # 1 + 0.5 · 4, 2 + 0.25 · 4, 3 + 0.5 · 4, and the fourth as it came
    torch.testing.assert_close(stream[0, :4, 0], torch.tensor([3.0, 3.0, 5.0, 4.0]))


def test_which_of_equal_logits_is_chosen_is_free_and_nothing_else():
    ties = dataclasses.replace(case(GATE, 0), arguments=(torch.tensor([[1.0, 2.0, 1.0, 1.0]]), 2))
    other, best = ties.arguments[0].softmax(1)[0, :2].tolist()
    expected = plain(GATE.reference(*ties.arguments))
    for place in (0, 2, 3):
        answer = torch.zeros(1, 4).index_put((torch.tensor(0), torch.tensor([1, place])), torch.tensor([best, other]))
        assert GATE.agree(answer, expected, ties) is None
    for wrong in ([other, 0, 0, best], [0, best, 0, 0], [other, best, other, 0], [0, other, best, 0]):
        assert GATE.agree(torch.tensor([wrong]), expected, ties), wrong


def test_rows_of_one_expert_may_stand_in_any_order_and_no_others():
    given_case, (token, ends, output) = case(DISPATCH, 0), right(DISPATCH, 0)
    for order in ([2, 0, 1, 0, 1, 2], [0, 2, 1, 2, 1, 0]):
        assert DISPATCH.agree((torch.tensor(order), ends, output), (token, ends, output), given_case) is None
    for order in ([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 1, 1], [0, 2, 1, 0, 1]):
        assert "token" in DISPATCH.agree((torch.tensor(order), ends, output), (token, ends, output), given_case)


@pytest.mark.parametrize("answer", [DISPATCH.reference, DISPATCH.library])
def test_dispatch_is_the_formula_token_by_token(answer):
    generator = torch.Generator().manual_seed(3)
    experts, tokens = random_experts(5, 9, 6, std=0.5, generator=generator), torch.randn(11, 9, generator=generator)
    chosen = torch.stack([torch.randperm(5, generator=generator)[:2] for _ in range(11)])
    weights = torch.rand(11, 2, generator=generator)
    full = torch.zeros(11, 5).scatter(1, chosen, weights)
    expected = token_loop(experts, tokens, full, among(chosen, 5)).detach()
    output = answer(tokens, chosen, weights, experts.into.detach(), experts.out.detach())[2]
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)  # sums in another order, float32


@pytest.mark.parametrize("answer", [TOP1.reference, TOP1.library])
def test_the_gradient_is_what_small_steps_say(answer):
    generator = torch.Generator().manual_seed(5)
    logits, slope = torch.randn(6, 4, generator=generator).double(), torch.randn(6, generator=generator).double()
    step, found = 1e-5, torch.zeros(6, 4, dtype=torch.float64)
    for expert in range(4):
        sides = [
            logits.index_add(1, torch.tensor([expert]), torch.full((6, 1), by, dtype=torch.float64))
            for by in (step, -step)
        ]
        rise = torch.stack([answer(side, slope)[0] for side in sides])
        found[:, expert] = slope * (rise[0] - rise[1]) / (2 * step)
    torch.testing.assert_close(answer(logits, slope)[1], found, rtol=0, atol=1e-9)  # the rest of Taylor is step², 1e-10


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 19))
def test_who_comes_first_does_not_depend_on_who_comes_later(seed, cut):
    """And a token without a place goes on as it came."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(0, 3, (2, 20), generator=generator)
    stream, outputs = torch.randn(2, 2, 20, 4, generator=generator)
    weights = torch.rand(2, 20, generator=generator)
    others = torch.cat([chosen[:, :cut], torch.randint(0, 3, (2, 20 - cut), generator=generator)], dim=1)
    keep, new = CAPACITY.reference(stream, outputs, chosen, weights, 3, 1.25)
    again, _ = CAPACITY.reference(stream, outputs, others, weights.flip(1), 3, 1.25)
    assert torch.equal(keep[:, :cut], again[:, :cut])
    assert torch.equal(new[~keep], stream[~keep])
    counts = torch.stack([(keep & (chosen == e)).sum(1) for e in range(3)])
    wishes = torch.stack([(chosen == e).sum(1) for e in range(3)])
    assert torch.equal(counts, wishes.clamp(max=8))  # 1.25 · 20 / 3, rounded down


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.data())
def test_the_gate_keeps_k_of_the_softmax(seed, n_experts, data):
    k = data.draw(st.integers(1, n_experts))
    logits = torch.randn(5, n_experts, generator=torch.Generator().manual_seed(seed))
    weights, probs = GATE.reference(logits, k), logits.softmax(1)
    assert ((weights > 0).sum(1) == k).all()
    assert torch.equal(weights[weights > 0], probs[weights > 0])
    torch.testing.assert_close(weights.sum(1), probs.sort(1, descending=True).values[:, :k].sum(1))
