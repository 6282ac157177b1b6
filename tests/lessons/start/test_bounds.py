"""The references of two exercises by hand: the shortest time of a pass, and how fast a part must get."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.start.exercises import SPEEDUP, STEP_SECONDS


def test_a_pass_by_hand():
    """2 s of arithmetic, then 0.4 s of reading; as a single operation it would be 2.02 s."""
    flops, n_bytes = torch.tensor([[2e11, 2e9], [1e9, 4e9]], dtype=torch.float64)
    assert STEP_SECONDS.reference(flops, n_bytes, 1e11, 1e10) == pytest.approx(2.4)


@given(st.floats(0.01, 1.0), st.floats(1.0, 200.0))
def test_the_factor_reaches_the_goal_or_no_factor_does(fraction, goal):
    factor = SPEEDUP.reference(fraction, goal)
    if factor:
        assert 1 / (1 - fraction + fraction / factor) == pytest.approx(goal, rel=1e-6)
    else:
        assert goal * (1 - fraction) >= 1 - 1e-9
