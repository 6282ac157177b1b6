"""The claims on retraining and generalisation, judged by made-up results; the networks are the sample."""

import pytest

from course_lib.lessons.classic import claims


def made_up(pruned, retrained, spread=0.001, n=3):
    """Digits with a dense accuracy of 0.98, and accuracies at a sparsity of 68 %, the nearest to 70 %."""
    rows = []
    for seed in range(n):
        off = spread * (seed - (n - 1) / 2)
        for method in ("magnitude", "OBD"):
            rows.append({"method": method, "seed": seed, "sparsity": 0.0, "pruned": 0.98, "retrained": 0.98})
            near = {"pruned": pruned + off, "retrained": retrained + off}
            rows.append({"method": method, "seed": seed, "sparsity": 0.68} | near)
            rows.append({"method": method, "seed": seed, "sparsity": 0.9, "pruned": 0.1, "retrained": 0.1})
    return {"tables": {"digits": rows}}


@pytest.mark.parametrize(
    ("pruned", "retrained", "back", "harmed"),
    [
        (0.90, 0.97, "holds", "holds"),  # 0.07 of 0.08 comes back
        (0.90, 0.93, "does not hold", "holds"),
        (0.975, 0.979, "holds", "does not hold"),
    ],
)
def test_the_sparsity_nearest_to_70_is_judged(pruned, retrained, back, harmed):
    measured = made_up(pruned, retrained)
    assert claims.RETRAINED.judge(measured).words == back
    assert claims.OBD_HARMS.judge(measured).words == harmed


def test_networks_that_disagree_leave_the_claims_undecided():
    measured = made_up(0.96, 0.97, spread=0.1)
    assert claims.OBD_HARMS.judge(measured).verdict == "undecided"
    assert claims.RETRAINED.judge(measured).verdict == "undecided"


def test_our_number_lists_the_three_accuracies():
    found = claims.RETRAINED.judge(made_up(0.90, 0.97))
    assert found.ours == "98.0 % dense, 90.0 % pruned, 97.0 % after retraining"


@pytest.mark.parametrize(
    ("after", "word"),
    [
        ((0.97, 0.98, 0.97), "holds"),
        ((0.93, 0.92, 0.93), "does not hold"),
        ((0.94, 0.97, 0.95), "undecided"),
        ((0.95, 0.95, 0.95), "does not hold"),  # no change at all is no gain
    ],
)
def test_pruned_networks_on_all_robots(after, word):
    runs = [
        {"problem": problem, "method": "OBS", "refit": False, "dense_test": 0.95, "test": test}
        for problem in (1, 2, 3)
        for test in after
    ]
    assert claims.GENERALISE.judge({"tables": {"monks": runs}}).verdict == word
