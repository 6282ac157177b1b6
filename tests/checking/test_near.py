"""Several named results, each with its own rounding."""

import pytest
import torch

from course_lib.checking.near import all_near, near

RIGHT = (torch.tensor(2.0), torch.tensor([1.0, 1e-8, -1.0]))
ROUNDINGS = {"loss": 1e-6, "gradient": 1e-7}


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (RIGHT, None),
        ((2.0, (1.0, 0.0, -1.0)), None),  # a number, a list: off by less than the rounding
        ((torch.tensor(2.1), RIGHT[1]), "loss: got 2.1, expected 2"),
        ((RIGHT[0], torch.tensor([1.0, 1e-8, 1.0])), "gradient: first different at [2]: got 1, expected -1"),
        ((RIGHT[0], torch.tensor([1.0, 0.0])), "gradient: the shape is (2,), expected (3,)"),
        ((RIGHT[0], torch.tensor([1.0, float("nan"), -1.0])), "gradient: first different at [1]: got nan"),
        (RIGHT[0], "expected 2 values: the loss and the gradient"),
        ((*RIGHT, RIGHT[0]), "expected 2 values: the loss and the gradient"),
    ],
)
def test_what_is_said(got, said):
    problem = all_near(got, RIGHT, ROUNDINGS)
    assert problem is None if said is None else said in problem


def test_what_is_expected_may_be_no_tuple():
    assert all_near(3.0, 3.0, ROUNDINGS) is None
    assert "expected 4" in all_near(3.0, 4.0, ROUNDINGS)


def test_the_rounding_is_that_of_the_exercise():
    got, right = torch.tensor([1e-3, 0.0]), torch.tensor([0.0, 0.0])
    assert near(got, right, 1e-2) is None
    assert near(got, right, 1e-4)
