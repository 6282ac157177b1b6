"""What lesson 06 says of vowels, trees and experts between LSTMs follows from the measurement, and changes with it."""

import copy

import pytest
from table_cells import rows as cells

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import claims, tables


@pytest.fixture(scope="module")
def committed():
    return load_measured("moe", "experiments/moe_classic")


def start(learner, seed, alone, epochs):
    row = {"learner": learner, "seed": seed, "accuracy": 0.9, "likeliest_accuracy": alone, "epochs_to_90": epochs}
    return row | {"experts_used": 2}


@pytest.fixture
def small():
    """Three starts of four learners; those of a perceptron's never reach the share."""
    vowels = [start(claims.MIXTURE, seed, 0.9, 100 + 20 * seed) for seed in range(3)]
    vowels += [start(claims.BLENDED, seed, 0.7 + 0.02 * seed, 90 - 10 * seed) for seed in range(3)]
    for name in claims.PERCEPTRONS:
        vowels += [start(name, seed, None, 300 + 10 * seed) for seed in range(3)]
    arm = [
        {"depth": 0, "log_likelihood": None, "error": [0.3]},
        {"depth": 2, "log_likelihood": [-3.0, -2.0, -2.0], "error": [0.2, 0.1, 0.06]},
    ]
    recurrent = [
        {"model": name, "seed": seed, "losses": [2.0 - lower, 2.2 - lower, 2.1 - lower]}
        for name, gains in (("dense", (0.0, 0.0, 0.0)), ("4 of 16 experts", (0.1, 0.12, 0.08)))
        for seed, lower in enumerate(gains)
    ]
    return {"tables": {"vowels": vowels, "arm": arm, "recurrent": recurrent}}


def test_starts_are_compared_in_pairs(small):
    alone, sooner, blended = (
        claim.judge(small) for claim in (claims.VOWELS_ALONE, claims.VOWELS_SOONER, claims.VOWELS_BLENDED)
    )
    assert (alone.ours, alone.words) == ("+18.0 ± 1.2 percentage points", "holds")
    assert sooner.ours == "+190.0 ± 5.8 epochs (perceptron, 6 hidden), +190.0 ± 5.8 epochs (perceptron, 12 hidden)"
    assert (blended.ours, blended.words) == ("+40 ± 17 epochs", "undecided (n = 3; about 5 samples would decide)")


def test_a_likelihood_that_falls_is_noticed(small):
    assert claims.EM_CLIMBS.judge(small).words == "holds"
    assert claims.EM_CLIMBS.judge(small).ours == "true of 1 of 1 runs"
    small["tables"]["arm"][1]["log_likelihood"] = [-3.0, -2.0, -2.1]
    assert claims.EM_CLIMBS.judge(small).words == "does not hold"


@pytest.mark.parametrize(("more", "verdict"), [(0.0, "holds"), (0.1, "undecided"), (0.2, "does not hold")])
def test_experts_between_lstms_are_compared_seed_by_seed(small, more, verdict):
    for row in small["tables"]["recurrent"]:
        if row["model"] != "dense":
            row["losses"] = [loss + more for loss in row["losses"]]
    judged = claims.RECURRENT.judge(small)
    assert (judged.verdict, judged.estimates[""].value, judged.n) == (verdict, pytest.approx(0.1 - more), "3")


def test_the_table_compares_each_model_with_another(committed):
    rows = cells(tables.classic(committed))
    assert [(row[0], row[3], row[5]) for row in rows] == [
        ("1991", "90.5", "74.2"), ("1991", "137", "844"), ("1994", "0.015", "0.268"), ("2017", "1.770", "1.795"),
    ]  # fmt: skip
    changed = copy.deepcopy(committed)
    for row in changed["tables"]["arm"]:
        row["error"] = [2 * error for error in row["error"]]
    assert cells(tables.classic(changed))[2][3] == "0.030"
