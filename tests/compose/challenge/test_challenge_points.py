"""Points by hand, and what one window can move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.compose.challenge.points import FULL, UNIFORM, Anchors, points
from course_lib.compose.recipe import from_json

FLAT = {"a": (1.0, 1.0), "b": (2.0, 2.0)}


def shifted(by_a, by_b=None):
    by_b = by_a if by_b is None else by_b
    return {"a": tuple(x + by_a for x in FLAT["a"]), "b": tuple(x + by_b for x in FLAT["b"])}


ANCHORS = Anchors(dense=FLAT, uniform=shifted(1.0), master=shifted(0.2))


@pytest.mark.parametrize(
    ("losses", "expected", "domain"),
    [
        (shifted(0.2), 20, "a"),  # the master's own
        (shifted(0.1), 20, "a"),  # no more than all
        (shifted(0.6), 10, "a"),
        (shifted(1.0), 0, "a"),
        (shifted(5.0, 4.0), 0, "a"),  # no less than nothing
        (shifted(0.2, 0.6), 10, "b"),  # the worse of the two counts
        (shifted(0.6, 0.2), 10, "a"),
        (shifted(-3.0, 0.8), 5, "b"),  # however good the other is
    ],
)
def test_points_by_hand(losses, expected, domain):
    found = points(losses, ANCHORS)
    assert (found.points, found.domain) == (pytest.approx(expected), domain)
    assert found.swing == pytest.approx(0, abs=1e-9)  # all windows alike


def test_what_one_window_moves_by_hand():
    """Of two windows that earn 20 and 0, leaving out either moves 10 to the other."""
    found = points({"a": (1.2, 2.0), "b": (2.2, 2.2)}, ANCHORS)
    assert (found.points, found.swing) == (pytest.approx(10), pytest.approx(10))


def test_hard_windows_are_hard_for_all():
    """A window on which every model loses three nats more moves nothing: anchors read the same ones."""
    above = {"dense": 0.0, "uniform": 1.0, "master": 0.2}
    hard = {name: {"a": (1.0 + d, 4.0 + d), "b": (2.0 + d, 2.0 + d)} for name, d in above.items()}
    found = points({"a": (1.6, 4.6), "b": (2.6, 2.6)}, Anchors(**hard))
    assert (found.points, found.swing) == (pytest.approx(10), pytest.approx(0, abs=1e-9))


@given(st.floats(-2, 3), st.floats(-2, 3))
def test_who_loses_more_never_earns_more(one, other):
    low, high = sorted((one, other))
    assert points(shifted(low), ANCHORS).points >= points(shifted(high), ANCHORS).points
    assert 0 <= points(shifted(one, other), ANCHORS).points <= FULL


def test_anchors_that_cannot_be_told_apart_are_refused():
    """Two windows that differ by 0 and 0.2: 0.1 ± 0.1, less than two errors; and a master that loses more."""
    noisy = {"a": (1.0, 1.2), "b": (2.0, 2.2)}
    for uniform, master in ((noisy, FLAT), (shifted(0.2), shifted(0.3))):
        with pytest.raises(ValueError, match="expected more than two errors"):
            Anchors(dense=FLAT, uniform=uniform, master=master).check()


def test_the_uniform_anchor_is_a_recipe():
    ANCHORS.check()
    assert from_json(UNIFORM).part("weights").method == "Wanda"
