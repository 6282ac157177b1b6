"""Kendall's tau by hand and against scipy, ties included."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from course_lib.measure.ranks import kendall


def test_tau_by_hand():
    assert kendall([1, 2, 3, 4], [1, 2, 3, 4]) == 1
    assert kendall([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=9))
def test_tau_against_scipy(rows):
    one, other = zip(*rows, strict=True)
    if len(set(one)) == 1 or len(set(other)) == 1:
        with pytest.raises(ValueError, match="all the same"):
            kendall(one, other)
    else:
        assert kendall(one, other) == pytest.approx(kendalltau(one, other).statistic)


@pytest.mark.parametrize(("one", "other"), [([1.0], [2.0]), ([1.0, 2.0], [1.0])])
def test_rows_that_cannot_be_compared(one, other):
    with pytest.raises(ValueError, match="at least two"):
        kendall(one, other)


def test_nan_has_no_order():
    with pytest.raises(ValueError, match="got 1 NaN among 4 values"):
        kendall([1.0, 2.0], [float("nan"), 2.0])
