"""Decoding with predictors and what a batch needs, from made-up rows."""

import pytest
from claimed import one

from course_lib.lessons.dejavu.claims.ground import GATED
from course_lib.lessons.dejavu.tables.further import batch_needs_more, one_kernel, twice


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((2.5, 3.0), "holds"),
        ((1.5, 3.0), "holds partly (1 of 2)"),
        ((1.0, 1.5), "not at this scale"),
        ((2.0, 2.0), "cannot tell"),
    ],
)
def test_predictors_are_asked_for_twice_the_speed(times, word):
    rows = [{"side": "oracle", "times_anchor": 9, "times_anchor_low": 9, "times_anchor_high": 9}]  # is not asked
    rows += [
        {"side": "predicted", "times_anchor": t, "times_anchor_low": t / 1.02, "times_anchor_high": t * 1.02}
        for t in times
    ]
    assert one(twice({"tables": {"sides": rows}}), "over 2 times as fast") == word


@pytest.mark.parametrize(
    ("together", "word"),
    [([0.5, 0.52], "holds"), ([0.3, 0.32], "does not hold"), ([0.2, 0.6], "cannot tell (not with 100 times")],
)
def test_a_batch_beside_twice_one_sequence(together, word):
    rows = [{"model": GATED, "batch": n, "shares": shares} for n, shares in ((1, [0.2, 0.2]), (4, together))]
    assert one(batch_needs_more({"tables": {"batch": rows}}), "over twice the neurons of one").startswith(word)


@pytest.mark.parametrize(
    ("gathered", "kernel", "word"),
    [
        ((0.3, 1.2), (0.5, 2.0), "holds"),
        ((0.3, 1.2), (0.5, 1.0), "holds partly (1 of 2)"),
        ((0.9, 1.2), (0.5, 1.0), "does not hold"),
    ],
)
def test_one_kernel_beside_copies(gathered, kernel, word):
    """Both have the dense MLP as their anchor, and are compared with each other."""
    sides = {"torch, gathered rows": gathered, "kernel": kernel}
    rows = [
        {"contest": f"density {n}", "side": side, "times_anchor": t, "times_anchor_low": t, "times_anchor_high": t}
        for side, times in sides.items()
        for n, t in enumerate(times)
    ]
    assert one(one_kernel({"benches": {"gathered_mlp": {"rows": rows}}}), "one kernel takes less time") == word
