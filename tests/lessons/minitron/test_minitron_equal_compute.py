"""A teacher compared with the text alone: checkpoints of equal compute are paired, and compared by windows."""

import math

import pytest

from course_lib.lessons.minitron import claims, plots, results


def checkpoint(run, step, flops, *losses):
    perplexity = math.exp(sum(losses) / len(losses))
    return {"run": run, "step": step, "flops": flops, "losses": list(losses), "perplexity": perplexity}


@pytest.fixture
def runs():
    """Three windows; checkpoints of the runs without a teacher at 1.00, 2.01 and 2.5 petaFLOP, or at 1 alone."""
    by_kl = [
        checkpoint("KL", 0, 0, 4.0, 4.0, 4.0),
        checkpoint("KL", 10, 10**15, 3.5, 3.6, 3.7),
        checkpoint("KL", 20, 2 * 10**15, 3, 3, 3),
    ]
    alone = [
        checkpoint("next token", 0, 0, 4.0, 4.0, 4.0),
        checkpoint("next token", 14, 10**15, 3.6, 3.7, 3.83),
        checkpoint("next token", 28, 2.01 * 10**15, 3.2, 3.25, 3.15),
        checkpoint("next token", 35, 2.5 * 10**15, 1.0, 1.0, 1.0),
        checkpoint("from scratch", 0, 0, 11.0, 11.0, 11.0),
        checkpoint("from scratch", 14, 10**15, 7.0, 7.1, 7.2),
    ]
    dense = [{"losses": [2.5, 2.5, 2.5], "perplexity": math.exp(2.5)}]
    return {"tables": {"curves": by_kl, "dense": dense}}, {"tables": {"curves": alone}}


def test_checkpoints_of_equal_compute_are_paired(runs):
    pairs = results.equal_pairs(*runs, "next token")
    assert [(teacher["step"], other["step"]) for teacher, other in pairs] == [(10, 14), (20, 28)]
    first, second = results.gain_of_teacher(pairs)
    assert first.value == pytest.approx((0.1 + 0.1 + 0.13) / 3)
    assert second.value == pytest.approx((0.2 + 0.25 + 0.15) / 3)
    assert second.error == pytest.approx(0.05 / math.sqrt(3))


def test_claims_follow_the_windows(runs):
    assert claims.TEACHER.judge(*runs).ours == "+0.200 ± 0.029 nats per token"
    all_claims = claims.TEACHER, claims.TEACHER_ALWAYS, claims.EQUAL_COMPUTE, claims.SCRATCH_ALWAYS
    assert [claim.judge(*runs).words for claim in all_claims] == ["holds"] * 4
    runs[1]["tables"]["curves"][2]["losses"] = [2.0, 2.1, 2.0]
    assert claims.TEACHER.judge(*runs).words == "does not hold"
    assert claims.TEACHER_ALWAYS.judge(*runs).words == (
        "mixed (holds in 10 steps with and 14 without a teacher; fails in 20 steps with and 28 without a teacher)"
    )


def test_the_figure_counts_where_the_teacher_is_better(runs):
    left, right = plots.equal_compute(*runs).axes
    title = left.get_title(loc="left")
    assert title == "After 1.000 petaFLOP: pruned, with the teacher 36.6,\nfrom random weights 1,212"
    assert right.get_title(loc="left") == "The teacher is clearly better at 2 of 2 points\nand clearly worse at 0"
    runs[1]["tables"]["curves"][2]["losses"] = [2.0, 2.1, 2.0]
    title = plots.equal_compute(*runs).axes[1].get_title(loc="left")
    assert title == "The teacher is clearly better at 1 of 2 points\nand clearly worse at 1"


@pytest.mark.parametrize("run", plots.RUNS)
def test_the_committed_runs_began_where_they_should_and_cost_the_same(run):
    """FLOP agree within one step; the pruned model starts with the losses of the run with the teacher."""
    measured, alone = results.results(), results.without_teacher()
    run_alone = results.curve(alone, run)
    pairs = results.equal_pairs(measured, alone, run)
    assert len(pairs) == len(run_alone) - 1 >= 6
    assert all(other["tokens"] > teacher["tokens"] for teacher, other in pairs)
    first = results.curve(measured)[0]["losses"]
    same = run_alone[0]["losses"] == pytest.approx(first, abs=1e-3)  # two processors add in other orders
    assert same == (run == "next token")
    assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in plots.equal_compute(measured, alone).axes)
