"""The fused Wanda mask: by hand, ties, NaN, and bit for bit what the library's Wanda prunes."""

import pytest
import torch
from course_lib.kernels.weights import wanda_mask
from kernel_device import on_device

from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import NofM

launch = on_device(wanda_mask.launch)


def test_two_groups_by_hand():
    weight = torch.tensor([[1.0, -2.0, 3.0, 4.0, 1.0, 1.0, 1.0, -1.0]])
    norm = torch.tensor([9.0, 1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    # Scores 9, 2, 6, 2: the large weight 4 leaves. Then four ties: the lower indices leave.
    pruned, keep = launch(weight, norm)
    assert keep.tolist() == [[True, False, True, False, False, False, True, True]]
    assert pruned.tolist() == [[1.0, 0.0, 3.0, 0.0, 0.0, 0.0, 1.0, -1.0]]


def test_keeps_n_and_not_m_minus_n():
    weight = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert launch(weight, torch.ones(4), n=1).weight.tolist() == [[0.0, 0.0, 0.0, 4.0]]
    assert launch(weight, torch.ones(4), n=3).weight.tolist() == [[0.0, 2.0, 3.0, 4.0]]


def test_equals_the_pruner_bit_for_bit(generator):
    inputs = Gram(64, needs="diagonal")
    inputs.add(torch.randn(30, 64, generator=generator))
    weight = torch.randn(24, 64, generator=generator)
    got = launch(weight, inputs.diagonal.sqrt(), 4, 8, write="weight")
    assert got.keep is None
    assert torch.equal(got.weight, Wanda(NofM(4, 8)).prune(weight, inputs))


def test_writes_only_what_is_asked_for(generator):
    weight = torch.randn(4, 8, generator=generator)
    got = launch(weight, torch.ones(8), write="keep")
    assert got.weight is None
    assert got.keep.dtype == torch.bool


def test_infinite_weights_stay_and_leave_without_nan():
    weight = torch.tensor([[float("inf"), float("-inf"), float("inf"), 1.0]])
    assert launch(weight, torch.ones(4), n=1).weight.tolist() == [[0.0, 0.0, float("inf"), 0.0]]


@pytest.mark.parametrize("write", ["weight", "keep", "both"])
def test_nan_is_refused(write):
    weight = torch.ones(3, 8)
    weight[2, 5] = float("nan")
    with pytest.raises(ValueError, match=r"NaN.*expected comparable numbers; look for NaN"):
        launch(weight, torch.ones(8), write=write)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 4, "m": 4}, "expected n < m"),
        ({"n": 2, "m": 3}, "expected m in .*; call reference"),
        ({"n": 2, "m": 4, "write": "mask"}, "write='mask': expected one of .*; choose"),
        ({"n": 4, "m": 8}, r"weight has shape \(2, 12\): expected .* a multiple of 8; choose"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        launch(torch.ones(2, 12), torch.ones(12), **settings)
