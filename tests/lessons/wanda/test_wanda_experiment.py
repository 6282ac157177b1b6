import math
from dataclasses import replace

import pytest

from course_lib.data.benchmarks import WANDA_TASKS
from course_lib.lessons.common.benchmarks import mean_accuracy
from course_lib.lessons.common.results import load_measured, load_published
from course_lib.lessons.wanda.experiments import wanda as experiment
from course_lib.models import Part, part_only
from course_lib.sparsity.patterns import NofM, Unstructured


def test_the_mean_is_over_the_seven_tasks_of_the_paper():
    rows = [
        {"task": task, "accuracy": 0.1 * i, "chance": 0.5, "standard_error": 0.07} for i, task in enumerate(WANDA_TASKS)
    ]
    rows.append({"task": "sciq", "accuracy": 1.0, "chance": 0.25, "standard_error": 9.0})
    mean = mean_accuracy(rows)
    assert mean["accuracy"] == pytest.approx(0.3)
    assert mean["chance"] == 0.5
    assert mean["standard_error"] == pytest.approx(0.07 * math.sqrt(7) / 7)


def test_patterns_are_those_of_the_paper():
    assert experiment.pattern_of("magnitude", "50%") == Unstructured(0.5, per="layer")
    assert experiment.pattern_of("wanda", "50%") == Unstructured(0.5, per="row")
    assert experiment.pattern_of("wanda", "2:4") == NofM(2, 4)
    assert experiment.pattern_of("magnitude", "4:8") == NofM(4, 8)


def test_published_rows_are_marked_and_complete():
    published = load_published("wanda")
    assert published["published"] is True
    rows = {(r["model"], r["method"], r["pattern"]): r["accuracy"] for r in published["tables"]["zero_shot_mean"]}
    assert len(rows) == 7 * 10
    assert rows["LLaMA-7B", "wanda", "50%"] == 0.5421
    assert rows["LLaMA-2-70B", "magnitude", "2:4"] == 0.5995
    assert len(published["tables"]["perplexity"]) == 3 * 10


@pytest.fixture(scope="module")
def run():
    """Runs a step of the experiment at the smallest sizes, on the first four blocks of the model."""
    sizes = replace(experiment.QUICK, questions={"sciq": 2, "boolq": 2}, evaluation={"wikipedia": 2})
    steps = {step.name: step.run for step in experiment.steps(sizes)}
    with part_only(Part()):
        yield lambda name: steps[name](0)


@pytest.mark.real
def test_the_main_table_has_rows_of_its_method_and_what_pairs_need(run):
    dense, pruned = run("dense"), run("wanda 2:4")
    assert dense["perplexity"][0]["perplexity"] != pruned["perplexity"][0]["perplexity"]
    assert {row["method"] for table in pruned.values() for row in table} == {"wanda"}
    assert [row["task"] for row in pruned["zero_shot"]] == ["sciq", "boolq"]
    for table in (dense, pruned):  # what is needed to compare the two in pairs
        (row,) = table["perplexity"]
        assert math.exp(sum(row["losses"]) / len(row["losses"])) == pytest.approx(row["perplexity"], rel=1e-4)
        assert [row["right"].count("1") / row["n"] for row in table["zero_shot"]] == [
            row["accuracy"] for row in table["zero_shot"]
        ]
    assert run("sweep: dense")["sweep"][0]["perplexity"] == dense["perplexity"][0]["perplexity"]


def test_the_committed_tables_obey_the_theorem_and_the_order_of_the_paper():
    tables = load_measured("wanda")["tables"]
    groups = {(row["method"], row["group"]): row["perplexity"] for row in tables["groups"]}
    assert groups["wanda", "(input, 1)"] == pytest.approx(groups["magnitude", "(input, 1)"], rel=1e-3)
    rows = {(row["method"], row["pattern"], row["corpus"]): row["perplexity"] for row in tables["perplexity"]}
    dense = rows["dense", "dense", "wikipedia"]
    assert dense < rows["wanda", "50%", "wikipedia"] < rows["magnitude", "50%", "wikipedia"]
