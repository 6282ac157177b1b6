"""Indices of the highest scores: by hand, as keep_highest keeps them, zeros of both signs, NaN, refusals."""

import pytest
import torch
from course_lib.kernels.per_token import top_indices
from kernel_device import DEVICE, on_device

from course_lib.sparsity.ranking import keep_highest

launch = on_device(top_indices.launch)
NAN, INFINITY = float("nan"), float("inf")


def test_two_rows_by_hand():
    scores = torch.tensor([[3.0, -1.0, 2.0, 9.0], [-4.0, -3.0, -2.0, -1.0]])
    assert launch(scores, 2).tolist() == [[0, 3], [2, 3]]


@pytest.mark.parametrize("n_kept", [1, 40, 99, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_is_what_keep_highest_keeps(n_kept, dtype, generator):
    """Among a hundred numbers of 15 values, many are equal at the edge."""
    scores = (torch.randint(15, (3, 100), generator=generator) - 7).to(dtype) / 3
    keep = keep_highest(scores, 100 - n_kept)
    assert torch.equal(launch(scores, n_kept), torch.stack([row.nonzero()[:, 0] for row in keep]).int())


def test_zeros_of_both_signs_are_equal():
    assert launch(torch.tensor([[0.0, -0.0, -1.0, -0.0]]), 2).tolist() == [[1, 3]]


def test_infinite_scores_are_the_last_and_the_first():
    scores = torch.tensor([[-INFINITY, 1.0, INFINITY, -1e38, -INFINITY]])
    assert launch(scores, 1).tolist() == [[2]]
    assert launch(scores, 4).tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_is_told_and_above_all_numbers(sign):
    scores = torch.tensor([[1.0, sign * NAN, INFINITY], [1.0, 2.0, 3.0]]).to(DEVICE)
    told = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    assert top_indices.launch(scores[1:], 1, told).tolist() == [[2]]
    assert told.tolist() == [0]
    assert top_indices.launch(scores, 1, told).tolist() == [[1], [2]]
    assert told.tolist() == [1]


@pytest.mark.parametrize("n_kept", [0, 5])
def test_a_number_that_a_row_cannot_keep_is_refused(n_kept):
    with pytest.raises(ValueError, match=f"n_kept is {n_kept}: expected .* from 1 to that of the scores"):
        launch(torch.ones(2, 4), n_kept)
