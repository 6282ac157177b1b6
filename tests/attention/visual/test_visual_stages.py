"""Ratios of three stages: R̄ by hand and for all places of the search, counts that fall, what is outside (0, 1]."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.visual.stages import Ratios, even, spread

SHARES = st.floats(0.01, 1.0)
PLACES = st.floats(0.0, 1.0)


def test_by_hand():
    """(.5 + .5 · .4 + .5 · .4 · .5) / 3 = .8 / 3; of 144 tokens 72, 57.6 / 2 and 28.8 / 2 are left."""
    ratios = Ratios(0.5, 0.4, 0.5)
    assert ratios.mean == pytest.approx(0.8 / 3)
    assert ratios.counts(144) == (72, 29, 14)
    assert Ratios().counts(144) == (144, 144, 144)
    assert Ratios().mean == 1


@given(SHARES, SHARES, SHARES, st.integers(1, 1000))
def test_counts_fall_and_are_the_nearest(first, second, third, n):
    counts = Ratios(first, second, third).counts(n)
    assert n >= counts[0] >= counts[1] >= counts[2] >= 1
    for count, share in zip(counts, (first, first * second, first * second * third), strict=True):
        assert abs(count - share * n) <= 0.5 + 1e-9 or (count == 1 and share * n < 1)


@given(SHARES)
def test_even_by_its_equation(mean):
    ratios = even(mean)
    assert ratios.first == ratios.second == ratios.third
    assert ratios.mean == pytest.approx(mean, rel=1e-12)


@given(SHARES, PLACES, PLACES)
def test_every_place_has_the_mean(mean, early, later):
    ratios = spread(mean, early, later)
    assert ratios.mean == pytest.approx(mean, rel=1e-9)
    assert ratios.first >= mean * (1 - 1e-12)


@given(SHARES)
def test_the_corner_has_no_stages(mean):
    assert spread(mean, 0.0, 0.0).each == pytest.approx((mean, 1, 1))


def test_the_other_corners_by_hand():
    """R̄ = .25: R₁ = .7 at most, which leaves R₂(1 + R₃) = .75 / .7 − 1 = .0714: (.0357, 1), or (.0643, .1111)."""
    assert spread(0.25, 1.0, 0.0).each == pytest.approx((0.7, 0.0357, 1.0), abs=1e-4)
    assert spread(0.25, 1.0, 1.0).each == pytest.approx((0.7, 0.0643, 0.1111), abs=1e-4)
    assert spread(1.0, 0.3, 0.8).each == (1, 1, 1)


@pytest.mark.parametrize("ratios", [(0.0, 1.0, 1.0), (1.0, 1.1, 1.0), (1.0, 1.0, -0.5), (float("nan"), 1.0, 1.0)])
def test_ratios_outside(ratios):
    with pytest.raises(ValueError, match=r"expected fractions of the tokens in \(0, 1\]"):
        Ratios(*ratios)


@pytest.mark.parametrize("mean", [0.0, 1.5, float("nan")])
def test_means_outside(mean):
    for call in (lambda: even(mean), lambda: spread(mean, 0.5, 0.5)):
        with pytest.raises(ValueError, match=r"expected one in \(0, 1\]"):
            call()


@pytest.mark.parametrize("place", [(-0.1, 0.0), (0.0, 1.1)])
def test_places_outside(place):
    with pytest.raises(ValueError, match="expected a place in the unit square"):
        spread(0.5, *place)
