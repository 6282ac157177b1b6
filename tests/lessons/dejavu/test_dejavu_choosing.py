"""The exercises on choosing, gathering and predicting neurons: worked examples, what is free, what must hold.

Dimension key: T tokens, D width, F neurons, H query heads, d size of a head, K neurons that stay.
"""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.checking.compare import plain
from course_lib.lessons.dejavu.exercises.gathered import GATHERED
from course_lib.lessons.dejavu.exercises.heads import HEADS
from course_lib.lessons.dejavu.exercises.importance import IMPORTANCE
from course_lib.lessons.dejavu.exercises.loss import LOSS

TWO_WAYS = ["reference", "library"]


def case(exercise, at, seed=0):
    return exercise.cases(torch.Generator().manual_seed(seed))[at]


def worked(exercise, way):
    return plain(getattr(exercise, way)(*case(exercise, 0).arguments))


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_worked_examples_give_what_their_titles_say(way):
    assert worked(IMPORTANCE, way).tolist() == [[True, True, False, False], [False, True, True, False]]
    torch.testing.assert_close(worked(HEADS, way), torch.tensor([[5.0, 2.0], [10.0, 1.0]]))
    torch.testing.assert_close(worked(GATHERED, way), torch.tensor([4.0, 6.0]))


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_worked_loss_by_hand(way):
    """Logits of ±log 3 say 3/4 and 1/4. Active: the first two of token 0, which are right, and one that is missed."""
    loss, gradient = worked(LOSS, way)
    w, right, wrong = 3 / 8 + 0.005, math.log(4 / 3), math.log(4)
    expected = (2 * right + w * (right + math.log(2)) + wrong + w * (math.log(2) + wrong + math.log(2))) / 8
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    slopes = [[-0.25, -0.25, w * 0.25, w * 0.5], [-0.75, w * 0.5, w * 0.75, w * 0.5]]
    torch.testing.assert_close(gradient, torch.tensor(slopes) / 8)


def test_which_of_equal_neurons_stays_is_free_and_nothing_else():
    ties = dataclasses.replace(case(IMPORTANCE, 0), arguments=(torch.tensor([[1.0, -3.0, -1.0, 1.0]]), torch.eye(4), 2))
    expected = plain(IMPORTANCE.reference(*ties.arguments))
    for other in (0, 2, 3):
        assert IMPORTANCE.agree(torch.zeros(1, 4).index_fill(1, torch.tensor([1, other]), 1), expected, ties) is None
    for wrong in ([1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 2, 0, 0]):
        assert IMPORTANCE.agree(torch.tensor([wrong]), expected, ties), wrong


@pytest.mark.parametrize("way", TWO_WAYS)
def test_leaving_out_a_neuron_that_stays_moves_the_output_more_than_one_that_leaves(way, generator):
    hidden, down = torch.randn(9, 14, generator=generator).double(), torch.randn(6, 14, generator=generator).double()
    keep = getattr(IMPORTANCE, way)(hidden, down, 5)
    moved = torch.stack([(hidden[:, [i]] * down[:, i]).norm(dim=1) for i in range(14)], dim=1)
    assert (keep.sum(1) == 5).all()
    assert (moved.masked_fill(~keep, math.inf).amin(1) >= moved.masked_fill(keep, 0).amax(1)).all()


@pytest.mark.parametrize("way", TWO_WAYS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n_heads=st.integers(1, 5), size=st.integers(1, 4))
def test_a_head_set_to_zero_takes_its_part_with_it(way, seed, n_heads, size):
    generator = torch.Generator().manual_seed(seed)
    heads = torch.randn(4, n_heads * size, generator=generator)
    weight = torch.randn(7, n_heads * size, generator=generator)
    for head in range(n_heads):
        without = heads.clone()
        without[:, head * size : (head + 1) * size] = 0
        moved = ((heads - without) @ weight.T).norm(dim=1)
        # float32; through WᵀW what cancels is off by 1e-7 of the squares, the root of which shows
        torch.testing.assert_close(getattr(HEADS, way)(heads, weight, n_heads)[:, head], moved, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("n_kept", [0, 1, 7, 20])
def test_gathered_is_the_dense_layer_without_the_others_and_reads_nothing_of_them(way, n_kept, generator):
    x, order = torch.randn(8, generator=generator), torch.randperm(20, generator=generator)
    gate, up = torch.randn(2, 20, 8, generator=generator)
    down = torch.randn(8, 20, generator=generator)
    hidden = torch.nn.functional.silu(gate @ x) * (up @ x)
    hidden[order[n_kept:]] = 0
    expected = down @ hidden
    for matrix in (gate, up, down.T):
        matrix[order[n_kept:]] = torch.nan
    output = getattr(GATHERED, way)(x, gate, up, down, order[:n_kept])
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)  # float32 sums in another order


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_slopes_of_the_loss_are_what_small_steps_say(way, generator):
    answer = getattr(LOSS, way)
    logits, parts = (
        torch.randn(3, 5, generator=generator).double(),
        torch.randn(3, 5, generator=generator).double().relu(),
    )
    step, found = 1e-5, torch.zeros(15, dtype=torch.float64)
    for at, unit in enumerate(torch.eye(15, dtype=torch.float64).reshape(15, 3, 5)):
        found[at] = (answer(logits + step * unit, parts, 2)[0] - answer(logits - step * unit, parts, 2)[0]) / (2 * step)
    _, gradient = answer(logits, parts, 2)
    torch.testing.assert_close(gradient.flatten(), found, rtol=0, atol=1e-9)  # the rest of Taylor is step², 1e-10
