"""Search: candidates near a budget, and both orders against a loop."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.attention.small_models.training import Schedule
from course_lib.measure.perplexity import window_losses
from course_lib.models import tiny_model
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.random_scores import Random
from course_lib.pruning.structured.search import Grid, Ranking, candidates, grid_of, search
from course_lib.pruning.structured.shape import Shape, n_parameters, shape_of
from course_lib.pruning.structured.surgery import cut

WINDOWS = torch.randint(0, 97, (6, 12), generator=torch.Generator().manual_seed(3))
RECIPE = Recipe(schedule=Schedule(n_steps=2, batch=2, length=12, rate=3e-3, warm_up=1, decay=0.0))


def test_the_grid_by_hand():
    grid = grid_of(Shape(width=48, blocks=10, neurons=64, heads=6, groups=2))
    assert grid.width == (48, 45, 42, 39, 36, 33)  # steps of 3, down to two thirds, 32, at most
    assert grid.blocks == (10, 9, 8, 7)
    assert grid.neurons == tuple(range(64, 20, -2))  # steps of 2, down to a third
    assert grid.heads == ((6, 2), (4, 2), (3, 1))


def test_one_group_of_one_head_stays():
    grid = grid_of(Shape(width=8, blocks=1, neurons=4, heads=1, groups=1))
    assert (grid.heads, grid.blocks) == (((1, 1),), (1,))


def test_candidates_by_hand():
    # 48 wide, 97 words, tied: 48 (97 + 1) outside; a block has 48 (2 · 8 · (heads + groups) + 3 · neurons + 2).
    model = tiny_model()
    outside, block = 48 * 98, lambda neurons, heads, groups: 48 * (16 * (heads + groups) + 3 * neurons + 2)
    grid = Grid(width=(48,), blocks=(2, 1), neurons=(100, 90, 80, 70), heads=((6, 2), (4, 2)))
    budget = outside + 2 * block(80, 6, 2)
    shapes = candidates(model, budget, grid)
    whole = shape_of(model)
    # With four heads a block has 32 · 48 weights fewer: 90 neurons (+ 30 · 48) come nearest. One block is too small.
    assert shapes == [replace(whole, neurons=80), replace(whole, neurons=90, heads=4)]
    assert [n_parameters(model, shape) - budget for shape in shapes] == [0, 2 * 48 * (30 - 32)]


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.6, 1.0), tolerance=st.floats(0.005, 0.1))
def test_candidates_are_possible_and_near(share, tolerance):
    model = tiny_model()
    budget = int(share * n_parameters(model, shape_of(model)))
    try:
        shapes = candidates(model, budget, tolerance=tolerance)
    except ValueError:
        return
    distances = [abs(n_parameters(model, shape) - budget) for shape in shapes]
    assert distances == sorted(distances)
    assert distances[-1] <= tolerance * budget
    assert all(shape.width % shape.heads == 0 for shape in shapes)
    assert len({replace(shape, neurons=1) for shape in shapes}) == len(shapes)


def test_shapes_that_a_family_cannot_have_are_left_out():
    for family in ("opt", "gpt2"):  # neither loses width or heads
        model = tiny_model(architecture=family)
        now = shape_of(model)
        budget = int(0.8 * n_parameters(model, now))
        found = candidates(model, budget, tolerance=0.1)
        assert {(shape.width, shape.heads) for shape in found} == {(now.width, now.heads)}


def test_a_budget_that_no_shape_meets():
    with pytest.raises(ValueError, match="no shape of the grid is within 5%.*goes further down"):
        candidates(tiny_model(), 1000)


def test_a_search_is_what_a_loop_does(monkeypatch):
    model = tiny_model(2)
    before_all = {name: value.clone() for name, value in model.state_dict().items()}
    scores, now = Random(1).score(Evidence(model, WINDOWS, False)), shape_of(tiny_model())
    shapes = [replace(now, neurons=60), replace(now, blocks=1), replace(now, heads=4, neurons=70)]
    found = search(model, shapes, scores, WINDOWS[:2], WINDOWS[2:], RECIPE, progress=False)
    for index, shape in enumerate(shapes):
        student = cut(model, shape, scores)
        assert found.parameters[index] == n_parameters(model, shape)
        assert torch.equal(found.before[index], window_losses(student, WINDOWS[:2], progress=False))
        distil(student, model, WINDOWS[2:], RECIPE, progress=False)
        assert torch.equal(found.after[index], window_losses(student, WINDOWS[:2], progress=False))
    assert all(torch.equal(value, before_all[name]) for name, value in model.state_dict().items())
    assert found.order_before == sorted(range(3), key=lambda index: found.before[index].mean())
    with pytest.raises(ValueError, match="got no shapes"):
        search(model, [], scores, WINDOWS, WINDOWS, RECIPE)


def test_orders_by_hand():
    shapes = [Shape(width=8, blocks=1, neurons=n, heads=1, groups=1) for n in (1, 2, 3)]
    before, after = (
        torch.tensor([[3.0, 3.0], [1.0, 2.0], [2.0, 3.0]]),
        torch.tensor([[2.0, 2.0], [0.0, 2.0], [3.0, 3.0]]),
    )
    ranking = Ranking(shapes=shapes, parameters=[1, 2, 3], before=before, after=after)
    assert (ranking.order_before, ranking.order_after) == ([1, 2, 0], [1, 0, 2])
    assert ranking.tau == pytest.approx(1 / 3)  # of three pairs two keep their order
    assert not ranking.agrees
    same = Ranking(shapes=shapes, parameters=[1, 2, 3], before=before, after=before + 1)
    assert (same.agrees, same.tau) == (True, 1.0)
