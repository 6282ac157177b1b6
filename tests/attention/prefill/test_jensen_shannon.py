"""Jensen–Shannon divergence by hand, at its bounds, and against scipy's."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.prefill.divergence import jensen_shannon

POSITIVE = st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1)), min_size=4, max_size=4).filter(lambda p: sum(p) > 1e-3)


def test_by_hand():
    """p = (1, 0), q = (1/2, 1/2): m = (3/4, 1/4), so ½ log(4/3) + ¼ log(2/3) + ¼ log 2 = ¼ log(64/27)."""
    got = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    assert float(got) == pytest.approx(math.log(64 / 27) / 4, abs=1e-12)


def test_outcomes_of_probability_zero_add_nothing():
    p, q = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]), torch.tensor([[0.0, 1, 0], [0.5, 0.5, 0]])
    torch.testing.assert_close(jensen_shannon(p, q), torch.tensor([math.log(2), 0.0], dtype=torch.float64))


def test_an_outcome_that_only_just_exists_is_no_infinity():
    """Half of the smallest number is rounded to 0, and its logarithm is not finite."""
    p, q = torch.tensor([[0.0, 1.0], [5e-324, 1.0]], dtype=torch.float64)
    assert float(jensen_shannon(p, q)) == 0


@given(POSITIVE, POSITIVE)
def test_is_scipys(p, q):
    """scipy gives the square root, whose slope near 0 has no bound: so squares are compared."""
    from scipy.spatial.distance import jensenshannon

    p, q = ([x / sum(each) for x in each] for each in (p, q))
    got = float(jensen_shannon(torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)))
    assert 0 <= got <= math.log(2) + 1e-12
    expected = float(jensenshannon(p, q))
    assert got == pytest.approx(0.0 if math.isnan(expected) else expected**2, abs=1e-12)
