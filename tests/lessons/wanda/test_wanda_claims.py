"""What sparsity costs step by step, from made-up perplexities."""

import math

import pytest

from course_lib.lessons.wanda import claims

NOISE = (-0.02, 0.0, 0.02)


def row(method, times, **label):
    losses = [math.log(20 * times) + each for each in NOISE]
    return {"method": method, "perplexity": 20 * times, "standard_error": 0.2, "losses": losses} | label


def made_up(magnitude=(2.0, 8.0), wanda=(1.1, 1.3), two_four=1.4, shaky=False):
    """Times the dense perplexity at 30 and 50 %; and of 2:4."""
    sweep = [row("dense", 1.0, sparsity=0.0)]
    for method, curve in (("magnitude", magnitude), ("wanda", wanda)):
        sweep += [row(method, times, sparsity=s) for s, times in zip((0.3, 0.5), curve, strict=True)]
    perplexity = [("dense", "dense", 1.0), ("wanda", "50%", wanda[1]), ("wanda", "2:4", two_four)]
    table = [row(method, times, pattern=p, corpus="wikipedia") for method, p, times in perplexity]
    if shaky:
        for index, each in enumerate([*sweep[1:], *table[1:]]):
            each["losses"] = [loss + 3 * (-1) ** (i + index) for i, loss in enumerate(each["losses"])]
    return {"tables": {"sweep": sweep, "perplexity": table}}


THRESHOLDS = ("MAGNITUDE_HARMS", "MAGNITUDE_FAILS_EARLY", "HALF_IS_CHEAP", "TWO_FOUR_IS_CHEAP")


def words(measured):
    return {name: getattr(claims, name).judge(measured).words for name in ("SWEEP", *THRESHOLDS)}


def test_a_sweep_that_climbs():
    assert words(made_up()) == dict.fromkeys(("SWEEP", *THRESHOLDS), "holds")
    assert claims.HALF_IS_CHEAP.judge(made_up()).ours == "1.3 times"
    assert claims.MAGNITUDE_HARMS.judge(made_up()).estimates[""].value == pytest.approx(math.log(8))


def test_a_sweep_that_stays():
    found = words(made_up(magnitude=(1.2, 1.3), wanda=(2.0, 2.0), two_four=3.0))
    assert found["SWEEP"] == "mixed (holds in magnitude, 30 %, magnitude, 50 %, wanda, 30 %; fails in wanda, 50 %)"
    assert found["MAGNITUDE_HARMS"] == found["MAGNITUDE_FAILS_EARLY"] == "does not hold"
    assert found["HALF_IS_CHEAP"] == found["TWO_FOUR_IS_CHEAP"] == "not at this scale"


@pytest.mark.parametrize("name", ["HALF_IS_CHEAP", "TWO_FOUR_IS_CHEAP", "MAGNITUDE_FAILS_EARLY"])
def test_windows_that_disagree_decide_nothing(name):
    assert getattr(claims, name).judge(made_up(shaky=True)).verdict == "undecided"


def test_claims_on_the_papers_own_table_by_hand():
    """LLaMA-7B loses 59.99 − 54.21 = 5.78 points with Wanda at 50 %, 13B 62.59 − 59.33 = 3.26."""
    lost = claims.LARGER_LOSE_LESS.judge()
    assert lost.estimates["LLaMA-13B after LLaMA-7B"].value == pytest.approx(0.0578 - 0.0326)
    assert len(lost.estimates) == 5
    above = claims.SPARSEGPT_ABOVE.judge().estimates
    assert {model: round(100 * each.value, 2) for model, each in above.items()} == {
        "LLaMA-7B": 0.73, "LLaMA-13B": -0.72, "LLaMA-30B": -0.51, "LLaMA-65B": -0.37,
        "LLaMA-2-7B": 0.0, "LLaMA-2-13B": -0.11, "LLaMA-2-70B": 0.25,
    }  # fmt: skip
    ratios = claims.PUBLISHED_SECONDS.judge().estimates
    assert [round(each.value) for each in ratios.values()] == [376, 373, 279, 242]
    assert claims.ALWAYS_ABOVE_MAGNITUDE.judge().words == "holds"
    assert len(claims.ALWAYS_ABOVE_MAGNITUDE.judge().estimates) == 21


def test_the_papers_tasks_and_those_with_a_signal_are_two_claims():
    """All right with Wanda and half of them with magnitude on sciq; the other way round on the paper's tasks."""
    answers = {True: "1" * 20, False: "10" * 10}
    zero_shot = []
    for task in (*claims.PAPERS_TASKS, "sciq"):
        for method in ("dense", "wanda", "magnitude"):
            right = answers[method != ("magnitude" if task == "sciq" else "wanda")]
            accuracy = right.count("1") / 20
            row = {"task": task, "method": method, "pattern": "dense" if method == "dense" else "50%", "n": 20}
            dense = {"accuracy": 0.5 if task != "sciq" else 0.9, "standard_error": 0.1, "chance": 0.5}
            zero_shot.append(row | {"accuracy": accuracy, "right": right} | (dense if method == "dense" else {}))
    measured = {"tables": {"zero_shot": zero_shot}}
    assert claims.ACCURACY.judge(measured).words == "not at this scale"
    assert claims.ACCURACY_WITH_SIGNAL.judge(measured).words == "holds"
