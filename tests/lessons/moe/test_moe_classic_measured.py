"""What lesson 06 says of vowels, trees and experts between LSTMs follows from the measurement, and changes with it."""

import copy

import pytest
from table_cells import rows as cells

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import claims
from course_lib.lessons.moe.figures import measured as plots
from course_lib.lessons.moe.tables import classic


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
        {"model": "dense", "seed": 0, "losses": [2.0, 2.2, 2.1]},
        {"model": "4 of 16 experts", "seed": 0, "losses": [1.9, 2.1, 2.0]},
    ]
    return {"tables": {"vowels": vowels, "arm": arm, "recurrent": recurrent}}


def test_starts_are_compared_in_pairs(small):
    alone, sooner, blended = (
        claim.judge(small) for claim in (claims.VOWELS_ALONE, claims.VOWELS_SOONER, claims.VOWELS_BLENDED)
    )
    assert (alone.ours, alone.words) == ("+18.0 ± 1.2 percentage points", "holds")
    assert sooner.ours == "+190.0 ± 5.8 epochs (perceptron, 6 hidden), +190.0 ± 5.8 epochs (perceptron, 12 hidden)"
    assert (blended.ours, blended.words) == ("+40 ± 17 epochs", "undecided (n = 3; about 5 samples would decide)")


def test_a_share_that_some_starts_never_reach_is_said(small):
    small["tables"]["vowels"][-1]["epochs_to_90"] = None
    *_, epochs, reached = cells(classic.vowels(small))[-1]
    assert (epochs, reached) == ("–", "2 of 3")


def test_a_likelihood_that_falls_is_noticed(small):
    assert claims.EM_CLIMBS.judge(small).words == "holds"
    assert claims.EM_CLIMBS.judge(small).ours == "true of 1 of 1 runs"
    small["tables"]["arm"][1]["log_likelihood"] = [-3.0, -2.0, -2.1]
    assert claims.EM_CLIMBS.judge(small).words == "does not hold"
    assert classic.arms(small).endswith("does not hold")
    assert cells(classic.arms_table(small))[1] == ["2", "0.200", "0.060"]


def test_experts_between_lstms_are_compared_window_by_window(small):
    judged = claims.RECURRENT.judge(small)
    assert (judged.words, judged.estimates["seed 0"].value) == ("holds", pytest.approx(0.1))


def test_the_committed_measurement_is_all_there_and_titles_follow_it(committed):
    assert len(classic.vowels(committed).frame) == 6
    assert classic.recurrent(committed).count("Verdict: ") == 2
    left, right = plots.recurrent(committed).axes
    assert left.get_title(loc="left").count(",") == 2
    changed = copy.deepcopy(committed)
    for row in changed["tables"]["recurrent"]:
        row["load"] = row["load"] and [1.0] + [0.0] * (len(row["load"]) - 1)
    assert (
        plots.recurrent(changed).axes[1].get_title(loc="left")
        == "The busiest expert has 100 % and 100 % of all choices"
    )
    assert right.get_xlabel()
