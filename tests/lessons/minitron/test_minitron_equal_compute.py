"""A teacher beside the text alone, at equal compute: looks that cost the same are paired, windows decide."""

import math

import pytest

from course_lib.lessons.minitron.figures import equal_compute, found


def look(run, step, flops, *losses):
    perplexity = math.exp(sum(losses) / len(losses))
    return {"run": run, "step": step, "flops": flops, "losses": list(losses), "perplexity": perplexity}


@pytest.fixture
def runs():
    """Three windows; the runs without a teacher look at 1.00, 2.01 and 2.5 petaFLOP, or at 1 alone."""
    by_kl = [
        look("KL", 0, 0, 4.0, 4.0, 4.0),
        look("KL", 10, 10**15, 3.5, 3.6, 3.7),
        look("KL", 20, 2 * 10**15, 3, 3, 3),
    ]
    alone = [
        look("next token", 0, 0, 4.0, 4.0, 4.0),
        look("next token", 14, 10**15, 3.6, 3.7, 3.9),
        look("next token", 28, 2.01 * 10**15, 3.2, 3.3, 3.1),
        look("next token", 35, 2.5 * 10**15, 1.0, 1.0, 1.0),
        look("from scratch", 0, 0, 11.0, 11.0, 11.0),
        look("from scratch", 14, 10**15, 7.0, 7.1, 7.2),
    ]
    dense = [{"losses": [2.5, 2.5, 2.5], "perplexity": math.exp(2.5)}]
    return {"tables": {"curves": by_kl, "dense": dense}}, {"tables": {"curves": alone}}


def test_looks_that_cost_the_same_are_paired(runs):
    pairs = equal_compute.looks(*runs, "next token")
    assert [(teacher["step"], other["step"]) for teacher, other in pairs] == [(10, 14), (20, 28)]
    first, second = equal_compute.than_teacher(pairs)
    assert first.value == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert second.value == pytest.approx((0.2 + 0.3 + 0.1) / 3)
    assert second.error == pytest.approx(0.1 / math.sqrt(3))


def test_claims_follow_the_windows(runs):
    said = equal_compute.claims_table(*runs).splitlines()
    assert said[0].endswith("than the text alone: holds")
    assert "after 20 steps by KL and 28 without a teacher: +0.200 ± 0.058 nats; over all 2 looks: holds" in said[1]
    assert said[2].endswith("ahead of one from nothing: holds")
    runs[1]["tables"]["curves"][2]["losses"] = [2.0, 2.1, 2.0]
    said = equal_compute.claims_table(*runs).splitlines()
    assert said[0].endswith("does not hold")
    assert said[1].endswith("holds partly (1 of 2)")


def test_the_figure_counts_who_is_ahead(runs):
    left, right = equal_compute.curves(*runs).axes
    assert left.get_title(loc="left") == "After 1.000 petaFLOP: by KL 36.6,\nfrom nothing 1,212"
    assert right.get_title(loc="left").startswith(
        "Of 2 looks the teacher is clearly ahead in 2,\nand clearly behind in 0"
    )
    runs[1]["tables"]["curves"][2]["losses"] = [2.0, 2.1, 2.0]
    title = equal_compute.curves(*runs).axes[1].get_title(loc="left")
    assert title == "Of 2 looks the teacher is clearly ahead in 1,\nand clearly behind in 1"


@pytest.mark.parametrize("run", equal_compute.NAMES)
def test_the_committed_runs_began_where_they_should_and_cost_the_same(run):
    """As many FLOP within a step's worth; the cut model is the one that learns by KL elsewhere, window by window."""
    measured, alone = found.results(), equal_compute.results()
    run_alone = found.curve(alone, run)
    pairs = equal_compute.looks(measured, alone, run)
    assert len(pairs) == len(run_alone) - 1 >= 6
    assert all(other["tokens"] > teacher["tokens"] for teacher, other in pairs)
    first = found.curve(measured)[0]["losses"]
    same = run_alone[0]["losses"] == pytest.approx(first, abs=1e-3)  # two processors add in other orders
    assert same == (run == "next token")
    assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in equal_compute.curves(measured, alone).axes)
