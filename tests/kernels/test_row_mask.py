"""Exact choice within rows: by hand, ties, infinities, NaN, and bit for bit what the library's Wanda prunes."""

import pytest
import torch
from course_lib.kernels.weights import row_mask
from kernel_device import on_device

from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Unstructured
from course_lib.sparsity.ranking import keep_highest

launch = on_device(row_mask.launch)


def test_by_hand():
    weight = torch.tensor([[1.0, -2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    norm = torch.tensor([9.0, 1.0, 2.0, 0.5, 1.0])
    # Scores 9, 2, 6, 2, 5: the two 2s leave. Then 9, 1, 2, 0.5, 1: the 0.5, and of two equals the lower index.
    pruned, keep = launch(weight, norm, 2)
    assert keep.tolist() == [[True, False, True, False, True], [True, False, True, False, True]]
    assert pruned.tolist() == [[1.0, 0.0, 3.0, 0.0, 5.0], [1.0, 0.0, 1.0, 0.0, 1.0]]


@pytest.mark.parametrize("n_leaving", [1, 5, 9])
def test_of_equals_the_first_leave(n_leaving):
    keep = launch(torch.ones(2, 10), None, n_leaving, "keep").keep
    assert keep.tolist() == [[False] * n_leaving + [True] * (10 - n_leaving)] * 2


def test_scores_below_zero_and_both_zeros():
    score = torch.tensor([[0.0, -0.0, -1.0, -2.0, float("inf"), float("-inf"), 1e-42, -1e-42]])
    for n_leaving in range(1, 8):
        assert torch.equal(launch(score, None, n_leaving, "keep").keep, keep_highest(score, n_leaving))


def test_equals_the_pruner_bit_for_bit(generator):
    inputs = Gram(90, needs="diagonal")
    inputs.add(torch.randn(30, 90, generator=generator))
    weight = torch.randn(24, 90, generator=generator).bfloat16()
    got = launch(weight, inputs.diagonal.sqrt(), 45, "weight")
    assert got.keep is None
    assert torch.equal(got.weight, Wanda(Unstructured(0.5)).prune(weight, inputs))


def test_nan_is_refused():
    weight = torch.ones(3, 8)
    weight[2, 5] = float("nan")
    with pytest.raises(ValueError, match=r"NaN.*expected comparable numbers; look for NaN"):
        launch(weight, torch.ones(8), 3)


@pytest.mark.parametrize(("n_leaving", "write"), [(0, "keep"), (12, "keep"), (3, "mask")])
def test_wrong_settings_are_refused(n_leaving, write):
    with pytest.raises(ValueError, match=r"expected one of .*; choose|expected at least one that leaves"):
        launch(torch.ones(2, 12), torch.ones(12), n_leaving, write)
