"""The experiment of lesson 01: its steps, a small run, and its committed result."""

import pytest

from course_lib.lessons.patterns.experiments import patterns as experiment


def test_every_pattern_is_measured_at_every_sparsity():
    names = [step.name for step in experiment.steps(experiment.Sizes())]
    assert len(names) == len(set(names)) == 1 + 2 * 6
    assert {"dense", "unstructured at 25%", "3:4 at 25%", "2:4 at 50%", "rows at 50%"} <= set(names)


@pytest.mark.real
def test_a_step_measures_the_pruned_model():
    sizes = experiment.QUICK
    (dense,), (pruned,) = (
        experiment.row(sizes, name, sparsity, seed=0)["perplexity"]
        for name, sparsity in (("dense", 0.0), ("rows", 0.5))
    )
    assert dense["n_tokens"] == pruned["n_tokens"] == sizes.evaluation * (sizes.length - 1)
    assert dense["perplexity"] < 1000 < pruned["perplexity"]


def test_the_committed_result_orders_the_patterns():
    for by_pattern in experiment.stored_perplexities().values():
        values = {name: found.value for name, found in by_pattern.items()}
        n_of_4 = next(value for name, value in values.items() if name.endswith(":4"))
        ordered = [values["dense"], values["unstructured"], n_of_4, values["blocks 4 × 4"], values["rows"]]
        assert ordered == sorted(ordered)
