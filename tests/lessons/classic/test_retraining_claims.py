"""What retraining brings back, from made-up digits: networks are the sample."""

import pytest
from claimed import one

from course_lib.lessons.classic.tables import generalisation_verdict, retraining_verdict


def made_up(pruned, retrained, spread=0.001, n=3):
    """A dense accuracy of 0.98; accuracies at 68 %, which is next to 70."""
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
    text = retraining_verdict(made_up(pruned, retrained))
    assert one(text, "retraining brings back") == back
    assert one(text, "OBD alone costs over a point") == harmed


def test_networks_that_disagree_decide_nothing():
    text = retraining_verdict(made_up(0.96, 0.97, spread=0.1))
    assert one(text, "OBD alone costs over a point").startswith("cannot tell")
    assert one(text, "retraining brings back").startswith("cannot tell")


@pytest.mark.parametrize(
    ("after", "word"),
    [((0.97, 0.98), "holds"), ((0.93, 0.92), "does not hold"), ((0.94, 0.97), "cannot tell"), ((0.95, 0.95), None)],
)
def test_pruned_networks_on_all_robots(after, word):
    runs = [
        {"problem": problem, "method": "OBS", "refit": False, "dense_test": 0.95, "test": test}
        for problem in (1, 2, 3)
        for test in after
    ]
    said = one(generalisation_verdict({"tables": {"monks": runs}}), "right on more of all 432")
    assert said.startswith(word or "does not hold")  # no change at all is no gain
