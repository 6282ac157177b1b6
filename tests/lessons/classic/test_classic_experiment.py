"""The experiment of lesson 02: its steps, small runs of them, and the stored result."""

from dataclasses import replace

import pytest

from course_lib.lessons.classic.claims import PUBLISHED
from course_lib.lessons.classic.experiments import classic as experiment
from course_lib.lessons.common.results import load_measured
from course_lib.pruning.classic.problems import NETWORKS


def test_step_names_are_unique():
    names = [step.name for step in experiment.steps(experiment.Sizes())]
    assert len(names) == len(set(names)) == 2 + 3 + 3 * 10 + 3 * 3 + 3
    assert {"two weights", "xor, decay 1e-05", "monks 3, seed 9", "digits OBS, seed 0"} <= set(names)


def test_two_weights_and_the_diagonal():
    rows = experiment.two_weights(0)["two_weights"]
    assert [row["cost"] for row in rows[:3]] == pytest.approx([0.02] * 3)
    assert [row["deletes"] for row in rows[3:6]] == [1, 2, 2]
    exact = {(r["network"], r["layer"]): r["relative_error"] < 1e-9 for r in experiment.recursion(0)["recursion"]}
    assert exact == {
        ("1 hidden layers", 1): True,
        ("1 hidden layers", 2): True,
        ("2 hidden layers", 1): False,
        ("2 hidden layers", 2): True,
        ("2 hidden layers", 3): True,
        ("3 hidden layers", 1): False,
        ("3 hidden layers", 2): False,
        ("3 hidden layers", 3): True,
        ("3 hidden layers", 4): True,
        ("convolution", 1): False,
        ("convolution", 2): True,
    }


def test_xor_counts_networks_that_stay_right():
    tables = experiment.exclusive_or(replace(experiment.QUICK, xor_starts=3), 1e-5, seed=0)
    by_method = {row["method"]: row for row in tables["xor"]}
    n = by_method["OBS"]["n_nets"]
    assert 0 < n <= 3
    assert by_method["OBS"]["right"] == by_method["OBS"]["right_with_update"] == n
    assert by_method["OBD"]["right"] == by_method["OBD"]["right_without"] < n


def test_summary_stops_before_the_first_loss():
    curve = [
        {"n_left": n, "train": train, "test": test}
        for n, train, test in [(5, 0.9, 0.8), (4, 0.9, 0.7), (3, 0.95, 0.8), (2, 0.8, 0.9), (1, 0.9, 0.9)]
    ]
    found = experiment.summary(curve, published=2)
    assert (found["n_left"], found["test"]) == (3, 0.8)
    assert found["n_left_unchanged"] == 5
    assert (found["train_at_published"], found["test_at_published"]) == (0.8, 0.9)
    assert experiment.summary(curve[:1], published=5)["n_left"] == 5


def test_a_monks_problem_and_the_digits_without_updates(monkeypatch):
    tables = experiment.handwriting(replace(experiment.QUICK, digits_per_round=1000), "magnitude", 0, seed=0)
    assert [row["n_left"] for row in tables["digits"]] == [1510, 510, 1]
    dense = tables["digits"][0]
    assert dense["pruned"] == dense["retrained"] == dense["retrained_each_round"] > 0.8
    monkeypatch.setattr(experiment, "monk_methods", lambda problem: {"magnitude": experiment.METHODS["magnitude"]})
    tables = experiment.monk(experiment.Sizes(), 3, 0, seed=0)
    assert [(row["method"], row["refit"]) for row in tables["monks"]] == [("magnitude", False), ("magnitude", True)]
    assert tables["monks_curves"][0]["n_left"] == list(range(NETWORKS[3].n_weights, 0, -1))
    assert tables["monks"][1]["n_left"] <= 6


@pytest.mark.real
def test_a_row_of_the_real_model():
    rows = experiment.rows_of_a_layer(replace(experiment.QUICK, layer_rows=1), "self_attn.q_proj", seed=0)["rows"]
    errors = {row["method"]: row["calibration"] for row in rows}
    assert errors["OBS"] < errors["OBD"] < 1


def test_the_stored_result_agrees_with_the_papers():
    tables = load_measured("classic")["tables"]
    for row in tables["xor"]:
        assert row["n_nets"] >= 50
        assert row["method"] != "OBS" or row["right"] == row["n_nets"]
    for problem, published in PUBLISHED.items():
        for index in range(10):
            runs = [r for r in tables["monks"] if (r["problem"], r["seed"], r["method"]) == (problem, index, "OBS")]
            assert min(r["n_left_unchanged"] for r in runs) <= published + 2
    ends = {r["method"]: r["pruned"] for r in tables["digits"] if r["n_left"] == 385 and r["seed"] == 0}
    assert ends["OBS"] > max(ends["OBD"], ends["magnitude"]) + 0.05
