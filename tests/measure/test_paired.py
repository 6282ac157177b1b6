"""Means and errors of paired samples, worked by hand."""

import math

import pytest
import torch

from course_lib.measure.paired import block_means, error_of_paired_shares, error_of_shares, mean_and_error, wilson


def test_mean_and_error_by_hand():
    mean, error = mean_and_error([1.0, 2.0, 6.0])  # squared deviations 4 + 1 + 9 = 14; s = sqrt(7)
    assert (mean, error) == (3.0, pytest.approx((7 / 3) ** 0.5))
    assert mean_and_error(torch.tensor([5.0])) == (5.0, math.inf)
    with pytest.raises(ValueError, match="at least one"):
        mean_and_error([])


def test_wilsons_interval_by_hand():
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(20, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)
    assert wilson(10, 20) == pytest.approx((0.2993, 0.7007), abs=1e-4)
    for n_right in (0, 20):  # the share itself is inside, to the last bit
        assert wilson(n_right, 20)[0] <= n_right / 20 <= wilson(n_right, 20)[1]
    assert wilson(9.5, 20)[0] < wilson(10, 20)[0]
    for wrong in ((21, 20), (-1, 20), (0, 0)):
        with pytest.raises(ValueError, match="0 to n of n"):
            wilson(*wrong)


def test_blocks_drop_what_is_left_over():
    assert block_means(torch.tensor([1.0, 3.0, 5.0, 7.0, 100.0]), 2).tolist() == [2.0, 6.0]
    with pytest.raises(ValueError, match="one whole block"):
        block_means(torch.ones(3), 4)


def test_neighbours_that_are_alike_are_no_more_evidence_than_one_of_them():
    each = torch.tensor([0.0, 1.0, 2.0, 3.0])
    copied = each.repeat_interleave(16)
    assert mean_and_error(block_means(copied, 16)) == mean_and_error(each)
    assert mean_and_error(copied)[1] < 0.3 * mean_and_error(each)[1]  # the mistake: tokens as samples


def test_two_shares_by_hand():
    half = (11 / 22) * (11 / 22) / 22
    assert error_of_shares(10, 10, 20) == pytest.approx((2 * half) ** 0.5)
    none = (1 / 22) * (21 / 22) / 22
    assert error_of_shares(0, 0, 20) == pytest.approx((2 * none) ** 0.5)  # none of 20 is not certain


def test_shares_of_the_same_questions_by_hand():
    """Of 4 questions 1 only the first has right, 0 only the other: with halves 1.5 and 0.5 of 6 differ."""
    expected = ((2 / 6 - (1 / 6) ** 2) / 6) ** 0.5
    assert error_of_paired_shares([1, 1, 0, 1], [1, 0, 0, 1]) == pytest.approx(expected)
    # Twice the other, of one question that both have right: values 1 - 2, weights 1.5, and 1, -2, 0 with a half each.
    mean, square = (-1.5 + 0.5 - 1.0) / 3, (1.5 + 0.5 + 2.0) / 3
    assert error_of_paired_shares("1", "1", 2.0) == pytest.approx(((square - mean**2) / 3) ** 0.5)


def test_answers_that_all_agree_are_not_known_for_certain():
    assert 0 < error_of_paired_shares("1" * 50, "1" * 50) < error_of_shares(50, 50, 50)
    for got, others in (("11", "1"), ("", "")):
        with pytest.raises(ValueError, match="as many of both, at least one"):
            error_of_paired_shares(got, others)


def test_with_many_questions_it_is_the_spread_of_their_differences(generator):
    right, others = (torch.randint(2, (2000,), generator=generator) for _ in range(2))
    _, error = mean_and_error((right - others).double())
    assert error_of_paired_shares(right.tolist(), others.tolist()) == pytest.approx(error, rel=2e-3)  # 4 half questions
