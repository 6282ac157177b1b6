"""What sparsity costs step by step, from made-up perplexities."""

import math

import pytest

from course_lib.lessons.wanda import claims, published

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
    assert (
        found["HALF_IS_CHEAP"] == found["TWO_FOUR_IS_CHEAP"] == "does not hold"
    )  # OPT-125M is as small and loses less


@pytest.mark.parametrize("name", ["HALF_IS_CHEAP", "TWO_FOUR_IS_CHEAP", "MAGNITUDE_FAILS_EARLY"])
def test_windows_that_disagree_decide_nothing(name):
    assert getattr(claims, name).judge(made_up(shaky=True)).verdict == "undecided"


def test_claims_on_the_papers_own_table_by_hand():
    """LLaMA-7B loses 59.99 − 54.21 = 5.78 points with Wanda at 50 %, 13B 62.59 − 59.33 = 3.26."""
    lost = published.LARGER_LOSE_LESS.judge()
    assert lost.estimates["LLaMA-13B after LLaMA-7B"].value == pytest.approx(0.0578 - 0.0326)
    assert len(lost.estimates) == 5
    above = published.SPARSEGPT_ABOVE.judge().estimates
    assert {model.removesuffix(", 50 %"): round(100 * each.value, 2) for model, each in above.items()} == {
        "LLaMA-7B": 0.73, "LLaMA-13B": -0.72, "LLaMA-30B": -0.51, "LLaMA-65B": -0.37,
        "LLaMA-2-7B": 0.0, "LLaMA-2-13B": -0.11, "LLaMA-2-70B": 0.25,
    }  # fmt: skip
    ratios = published.SECONDS.judge().estimates
    assert [round(each.value) for each in ratios.values()] == [376, 373, 279, 242]
    assert published.ALWAYS_ABOVE_MAGNITUDE.judge().words == "holds"
    assert len(published.ALWAYS_ABOVE_MAGNITUDE.judge().estimates) == 21


def test_fractions_of_the_dense_accuracy_in_the_papers_table():
    """LLaMA-7B keeps 54.21 / 59.99 = 90.4 % at 50 % and 48.53 / 59.99 = 80.9 % at 2:4 with Wanda."""
    half, two_four = claims.HALF_KEEPS.judge(), claims.TWO_FOUR_KEEPS.judge()
    assert round(100 * half.estimates["LLaMA-7B"].value, 1) == 90.4
    assert half.words == "holds"
    assert round(100 * two_four.estimates["LLaMA-7B"].value, 1) == 80.9
    assert two_four.words == "mixed (holds in 3; fails in 4)"
    assert claims.HALF_KEEPS.judge(made_up()).ours.endswith("; here 1.3 times the dense perplexity")
    kept = {name: getattr(published, name).judge() for name in ("KEEPS_MOST", "MAGNITUDE_KEEPS_MOST")}
    assert (kept["KEEPS_MOST"].words, len(kept["KEEPS_MOST"].estimates)) == ("holds", 14)
    assert kept["MAGNITUDE_KEEPS_MOST"].words == "mixed (holds in 2; fails in 5)"


def test_patterns_and_sizes_in_the_papers_table():
    patterns = published.TIGHTER_PATTERNS.judge()
    assert [case for case, effect in patterns.effects.items() if effect.fails] == [
        "LLaMA-13B, magnitude pruning, 50 % to 4:8"  # 47.61 and 50.53 %
    ]
    assert len(patterns.effects) == 42
    assert published.LARGER_LOSE_LESS_SPARSEGPT.judge().words == "holds"
    assert published.LARGER_LOSE_LESS_MAGNITUDE.judge().words == "mixed (holds in 3; fails in 2)"
    assert published.SPARSEGPT_ABOVE_DENSE.judge().estimates[""].value == pytest.approx(0.0020)  # 67.28 and 67.08 %
    assert published.WITHIN_THREE_POINTS.judge().words == "holds"
    assert len(published.SPARSEGPT_ABOVE_MAGNITUDE.judge().estimates) == 21


def table(sparsegpt, wanda, magnitude, larger=0.5, tighter=1.5):
    """Numbers of a made-up table: what each method loses of 60 % on the smallest model at 50 %.

    A larger model loses `larger` times as much, a tighter pattern `tighter` times.
    """
    losses = {"dense": 0.0, "sparsegpt": sparsegpt, "wanda": wanda, "magnitude": magnitude}

    def number(name, column, model, method, pattern=""):
        if name == "seconds":
            return {"sparsegpt": 1000 * sparsegpt, "wanda": 0.1}[method]
        size = next(family.index(model) for family in published.FAMILIES if model in family)
        steps = published.PATTERNS.index(pattern) if pattern in published.PATTERNS else 0
        return 0.6 - losses[method] * larger**size * tighter**steps

    return number


AS_CLAIMED, OTHERWISE = table(0.02, 0.03, 0.04), table(0.2, 0.1, 0.05, larger=1.2, tighter=0.9)
TURNS = {  # claims for which these two tables say the same
    published.WITHIN_THREE_POINTS.id: (AS_CLAIMED, table(0.01, 0.2, 0.3, larger=1.0, tighter=1.0)),
    published.MAGNITUDE_KEEPS_MOST.id: (AS_CLAIMED, table(0.1, 0.1, 0.2, larger=1.0)),
    published.SPARSEGPT_ABOVE_DENSE.id: (table(-0.01, 0.1, 0.1), AS_CLAIMED),
    published.SECONDS.id: (table(0.1, 0.1, 0.1), table(0.01, 0.1, 0.1)),
}


@pytest.mark.parametrize("claim", published.PUBLISHED_CLAIMS, ids=lambda claim: claim.id)
def test_another_table_turns_what_the_papers_table_says(claim, monkeypatch):
    for numbers, word in zip(TURNS.get(claim.id, (AS_CLAIMED, OTHERWISE)), ("holds", "does not hold"), strict=True):
        monkeypatch.setattr(published, "published", numbers)
        assert claim._judged(()).words == word


@pytest.mark.parametrize("name", ["HALF_KEEPS", "TWO_FOUR_KEEPS"])
def test_another_table_turns_what_wanda_keeps(name, monkeypatch):
    for numbers, word in (
        (table(0.01, 0.02, 0.03), "holds"),
        (table(0.1, 0.3, 0.3, larger=1.0, tighter=1.0), "does not hold"),
    ):
        monkeypatch.setattr(published, "published", numbers)
        assert getattr(claims, name).judge(made_up()).words == word


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
