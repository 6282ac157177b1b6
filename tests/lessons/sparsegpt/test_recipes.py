"""The open task of lesson 03: what a recipe may return, orders of columns, and ideas compared window by window."""

from dataclasses import replace

import pytest
import torch
from table_cells import rows

from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.sparsegpt import tables
from course_lib.lessons.sparsegpt.experiments import recipes
from course_lib.lessons.sparsegpt.experiments.recipes import gram_of
from course_lib.pruning.methods.sparsegpt import SparseGPT


@pytest.fixture
def some(generator):
    """Two small layers, and three held-out windows."""
    sizes = {"a": (6, 16), "b": (5, 24)}

    def products(n_tokens):
        inputs = {name: torch.randn(n_tokens, n, generator=generator) for name, (_, n) in sizes.items()}
        return {name: x.T @ x for name, x in inputs.items()}

    weights = {name: torch.randn(shape, generator=generator) for name, shape in sizes.items()}
    return recipes.Layers(weights, products(60), tuple(products(20) for _ in range(3)))


def test_the_usual_order_is_sparsegpt(some):
    weight, gram = some.weights["a"], some.calibration["a"]
    expected = SparseGPT().prune(weight, gram_of(gram))
    torch.testing.assert_close(recipes.sparsegpt_with_order(weight, gram), expected, rtol=1e-3, atol=1e-4)


def test_another_order_freezes_other_columns_last(some):
    """The column that is frozen last receives the updates of all others."""
    weight, gram = some.weights["a"], some.calibration["a"]
    backwards = recipes.sparsegpt_with_order(weight, gram, torch.arange(16).flip(0), block_size=4)
    turned = recipes.sparsegpt_with_order(weight.flip(1), gram.flip(0, 1), block_size=4).flip(1)
    torch.testing.assert_close(backwards, turned)
    assert not torch.equal(backwards, recipes.sparsegpt_with_order(weight, gram, block_size=4))


@pytest.mark.parametrize("idea", recipes.IDEAS)
def test_every_idea_prunes_half(some, idea):
    made = recipes.attempt(recipes.IDEAS[idea], some)
    assert made.held_out.shape == (3, 2)
    assert (made.held_out > 0).all()
    assert (made.calibration < made.held_out.mean(0)).all()  # updates are fitted to the calibration text


def test_the_relative_error_by_hand():
    one = {"a": torch.tensor([[3.0, 1.0]])}
    gram = {"a": torch.eye(2)}
    made = recipes.attempt(lambda weight, gram: weight * torch.tensor([1.0, 0.0]), recipes.Layers(one, gram, (gram,)))
    assert made.calibration.tolist() == pytest.approx([0.1])
    assert made.held_out.tolist() == [pytest.approx([0.1])]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (lambda weight, gram: weight, "zeros in a"),
        (lambda weight, gram: weight[:2], "shape"),
        (lambda weight, gram: None, "NoneType"),
        (lambda weight, gram: weight * torch.nan, "NaN"),
    ],
)
def test_a_result_that_is_no_pruned_weight_is_refused_in_words(some, recipe, message):
    with pytest.raises(ValueError, match=message):
        recipes.attempt(recipe, some)


def test_a_recipe_cannot_change_the_layer(some):
    before = some.weights["a"].clone()

    def careless(weight, gram):
        gram.zero_()
        return weight.mul_(0)

    assert recipes.attempt(careless, some).calibration.tolist() == pytest.approx([1.0, 1.0])
    assert torch.equal(some.weights["a"], before)


def test_ideas_are_compared_with_the_first_by_windows():
    usual = recipes.Attempt(torch.tensor([0.1]), torch.tensor([[0.1], [0.2]]))
    better = recipes.Attempt(torch.tensor([0.1]), torch.tensor([[0.1], [0.2]]) * torch.tensor([[0.5], [0.25]]))
    lower, error = against(better.losses, usual.losses)
    assert (lower, error) == pytest.approx((1.0397, 0.3466), abs=1e-3)  # the mean of log 2 and log 4
    first, second, yours = rows(tables.recipes(replace(usual), {"as it is": usual, "an idea": better}))
    assert first[-2:] == ["14.14 %", "–"]  # the geometric mean of 10 and 20 %
    assert second[-1] == "+1.040 ± 0.347"
    assert (yours[0], yours[-1]) == ("yours", "+0.000 ± 0.000")


def test_the_committed_ideas_are_those_of_the_code():
    stored = recipes.stored(load_measured("sparsegpt", "recipes")["tables"]["ideas"])
    assert list(stored) == list(recipes.IDEAS)
    assert {tuple(made.held_out.shape) for made in stored.values()} == {(recipes.HELD_OUT[0], len(recipes.LAYERS))}
