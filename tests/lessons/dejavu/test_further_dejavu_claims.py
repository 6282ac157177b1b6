"""Decoding with predictors and what a batch needs, from made-up rows."""

import pytest

from course_lib.lessons.dejavu import claims
from course_lib.lessons.dejavu.experiments.ground import GATED


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((2.5, 3.0), "holds"),
        ((1.5, 3.0), "mixed (holds in 10 % of the neurons; fails in 20 % of the neurons)"),
        ((1.0, 1.5), "not at this scale"),
        ((2.0, 2.0), "undecided"),
    ],
)
def test_predictors_are_asked_for_twice_the_speed(times, word):
    rows = [
        {"side": "oracle", "contest": "10% kept", "times_anchor": 9, "times_anchor_low": 9, "times_anchor_high": 9}
    ]  # is not asked
    rows += [
        {
            "side": "predicted",
            "contest": contest,
            "times_anchor": t,
            "times_anchor_low": t / 1.02,
            "times_anchor_high": t * 1.02,
        }
        for contest, t in zip(("20.0% kept (by block 40)", "10.0% kept (by block 20)"), times, strict=True)
    ]
    assert claims.TWICE.judge({"tables": {"sides": rows}}).words == word


@pytest.mark.parametrize(
    ("together", "word"),
    [
        ([0.5, 0.51, 0.52], "holds"),
        ([0.3, 0.31, 0.32], "does not hold"),
        ([0.2, 0.6], "undecided (n = 2; over 10 times"),
    ],
)
def test_a_batch_beside_twice_one_sequence(together, word):
    rows = [{"model": GATED, "batch": n, "shares": shares} for n, shares in ((1, [0.2, 0.2]), (4, together))]
    assert claims.BATCH_NEEDS_MORE.judge({"tables": {"batch": rows}}).words.startswith(word)


@pytest.mark.parametrize(
    ("gathered", "kernel", "word"),
    [
        ((0.3, 1.2), (0.5, 2.0), "holds"),
        ((0.3, 1.2), (0.5, 1.0), "mixed (holds in density 0; fails in density 1)"),
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
    assert claims.ONE_KERNEL.judge({"benches": {"gathered_mlp": {"rows": rows}}}).words == word
