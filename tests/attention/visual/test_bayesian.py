"""Expected improvement by hand and by sampling; a maximum is found; what cannot be searched."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.visual.bayesian import best, expected_improvement, maximise


def test_by_hand():
    """μ = f*: σ φ(0) = .3989 σ. Certain: what is above f*, or nothing. One σ above: σ (Φ(1) + φ(1)) = 1.0833 σ."""
    mean, deviation = torch.tensor([2.0, 3.0, 1.0, 2.5]), torch.tensor([0.5, 0.0, 0.0, 0.5])
    got = expected_improvement(mean, deviation, 2.0)
    torch.testing.assert_close(got, torch.tensor([0.19947, 1.0, 0.0, 0.54166]), atol=1e-5, rtol=0)


@given(st.floats(-1, 1), st.floats(0.1, 2))
def test_is_the_mean_of_samples(mean, deviation):
    samples = mean + deviation * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    got = expected_improvement(torch.tensor([mean]), torch.tensor([deviation]), 0.3)
    # four standard errors of a mean of 100 000, whose values spread no more than the deviation
    assert float(got) == pytest.approx(float((samples - 0.3).clamp(min=0).mean()), abs=4 * deviation / 100_000**0.5)


def hill(point):
    """Highest, 1, at (.3, .8)."""
    return math.exp(-8 * ((point[0] - 0.3) ** 2 + (point[1] - 0.8) ** 2))


def test_it_climbs_a_hill():
    trials = maximise(hill, [(0.9, 0.1)], n_first=6, n_steps=18, seed=0)
    assert len(trials) == 18
    assert trials[0].point == (0.9, 0.1)
    assert best(trials).value > 0.98
    assert best(trials[:6]).value < best(trials).value  # asking the process is what finds it


def test_the_same_seed_tries_the_same():
    one, again, other = (maximise(hill, [(0.5, 0.5)], 3, 5, seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_of_equals_the_first_is_best():
    trials = maximise(lambda point: 1.0, [(0.5,), (0.2,)], 3, 4, 0)  # nothing to learn: no failure either
    assert best(trials).point == (0.5,)


@pytest.mark.parametrize("first", [[], [(0.5,), (0.5, 0.5)], [(1.5, 0.0)]])
def test_points_outside(first):
    with pytest.raises(ValueError, match="in the unit cube"):
        maximise(hill, first, 3, 4, 0)


@pytest.mark.parametrize(("n_first", "n_steps"), [(1, 4), (5, 4)])
def test_too_few_steps(n_first, n_steps):
    with pytest.raises(ValueError, match="expected 2 or more"):
        maximise(hill, [(0.5, 0.5)], n_first, n_steps, 0)
