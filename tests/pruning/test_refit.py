"""Refit by hand, against plain least squares and conjugate gradients, and as the lower bound it claims to be."""

import pytest
import torch

from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods import refit as module
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit, refit
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Block, NofM, Unstructured


def gram_of(inputs):
    gram = Gram(inputs.shape[1])
    gram.add(inputs)
    return gram


@pytest.fixture
def layer(generator):
    mixing = torch.randn(40, 40, generator=generator) / 40**0.5 + torch.eye(40)
    return torch.randn(9, 40, generator=generator), torch.randn(300, 40, generator=generator) @ mixing


def lost(weight, pruned, inputs, damping=0.01):
    """The damped squared error, as everyone here minimises it."""
    change, gram = (weight - pruned).double(), inputs.double().T @ inputs.double()
    return ((change @ gram) * change).sum() + damping * gram.diagonal().mean() * change.square().sum()


def test_by_hand():
    """H = [[4, 2], [2, 2]], row (3, 1), column 1 dropped: w_0 = 3 + 2 · 1 / 4. Row (1, 2), column 0: 2 + 2 · 1 / 2."""
    gram = gram_of(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
    weight, keep = torch.tensor([[3.0, 1.0], [1.0, 2.0]]), torch.tensor([[True, False], [False, True]])
    torch.testing.assert_close(refit(weight, keep, gram, damping=0.0), torch.tensor([[3.5, 0.0], [0.0, 3.0]]))


def test_damping_adds_its_share_of_the_mean_diagonal():
    """As by hand above with H + 3 on the diagonal: w_0 = 3 + 2 · 1 / 7."""
    gram = gram_of(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
    found = refit(torch.tensor([[3.0, 1.0]]), torch.tensor([[True, False]]), gram, damping=1.0)
    torch.testing.assert_close(found, torch.tensor([[3 + 2 / 7, 0.0]]))


@pytest.mark.parametrize(("steps", "chunk"), [(200, 2**24), (0, 2**24), (3, 1000)])
@pytest.mark.parametrize("pattern", [Unstructured(0.5), Unstructured(0.6, per="layer"), NofM(1, 4)], ids=str)
def test_equals_least_squares_on_the_inputs_row_by_row(layer, pattern, steps, chunk, monkeypatch):
    """By gradients, by factors, and by factors in several batches with rows of different counts padded together."""
    monkeypatch.setattr(module, "STEPS", steps)
    monkeypatch.setattr(module, "CHUNK", chunk)
    weight, inputs = layer
    weight, keep = weight.double(), pattern.keep(weight.abs())
    found = refit(weight, keep, gram_of(inputs), damping=0.0)
    for row, kept, fitted in zip(weight, keep, found, strict=True):
        columns = inputs.double()[:, kept]
        expected = torch.linalg.lstsq(columns, (inputs.double() @ row)[:, None]).solution[:, 0]
        torch.testing.assert_close(fitted[kept], expected, rtol=1e-4, atol=1e-5)  # the Gram matrix is in float32
        assert (fitted[~kept] == 0).all()


def test_the_two_ways_to_solve_agree_to_ten_digits(layer):
    weight, matrix = layer[0].double(), (layer[1].T @ layer[1]).double()
    keep = Unstructured(0.5, per="layer").keep(weight.abs())
    by_gradients, left = module._by_gradients(weight, keep, matrix)
    assert not len(left)
    torch.testing.assert_close(by_gradients, module._by_factors(weight, keep, matrix), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pattern", [Unstructured(0.5), Unstructured(0.5, per="layer"), NofM(2, 4)], ids=str)
def test_nothing_on_the_same_mask_loses_less(layer, pattern):
    weight, inputs = layer
    gram = gram_of(inputs)
    for chooser in (Magnitude, Wanda, SparseGPT):
        plain, best = chooser(pattern).prune(weight, gram), Refit(pattern, chooser).prune(weight, gram)
        assert torch.equal(plain == 0, best == 0)
        assert lost(weight, best, inputs) < lost(weight, plain, inputs) * (1 - 1e-4)


def test_any_pattern_has_best_weights_tiles_too(layer):
    weight, inputs = layer
    pruned = Refit(Block(3, 8, 0.5)).prune(weight, gram_of(inputs))
    assert lost(weight, pruned, inputs) < lost(weight, Wanda(Block(3, 8, 0.5)).prune(weight, gram_of(inputs)), inputs)


def test_nothing_dropped_changes_nothing_and_all_dropped_leaves_nothing(layer):
    weight, inputs = layer
    keep = torch.ones_like(weight, dtype=torch.bool)
    assert torch.equal(refit(weight, keep, gram_of(inputs)), weight)
    assert (refit(weight, ~keep, gram_of(inputs)) == 0).all()


def test_zeros_stay_and_dead_inputs_go(layer):
    weight, inputs = layer[0].clone(), layer[1].clone()
    weight[2], inputs[:, 7] = 0, 0
    found = refit(weight, torch.ones_like(weight, dtype=torch.bool), gram_of(inputs))
    assert (found[2] == 0).all()
    assert (found[:, 7] == 0).all()


def test_few_tokens_are_damped_until_they_have_a_solution(generator):
    gram = gram_of(torch.randn(3, 24, generator=generator))
    pruned = Refit(NofM(2, 4), damping=0.0).prune(torch.randn(5, 24, generator=generator), gram)
    assert pruned.isfinite().all()
    assert "damping raised from 0" in gram.notes[0]


def test_a_name_is_refused_as_a_chooser():
    pruner = Refit(NofM(2, 4))
    pruner.chooser = "wanda"  # past the type checks of the tests, as in a notebook
    with pytest.raises(ValueError, match="expected a class of pruner, such as Wanda"):
        pruner.__post_init__()


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_the_function_too_refuses_weights_that_are_not_finite(layer, value):
    weight = layer[0].clone()
    weight[0, 0] = value
    with pytest.raises(ValueError, match="1 NaN or infinite entries"):
        refit(weight, torch.ones_like(weight, dtype=torch.bool), gram_of(layer[1]))
