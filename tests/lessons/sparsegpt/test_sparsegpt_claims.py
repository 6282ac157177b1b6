"""SparseGPT compared with magnitude and Wanda, from made-up rows."""

import math

import pytest

from course_lib.lessons.sparsegpt import claims

PATTERNS = ("50%", "4:8", "2:4")


def made_up(magnitude=100.0, seconds=(20.0, 30.0), wanda=0.70, n=400):
    perplexity = [
        {"method": method, "pattern": p, "corpus": "wikipedia", "perplexity": value, "standard_error": 1.0}
        for method, value in (("sparsegpt", 40.0), ("magnitude", magnitude))
        for p in PATTERNS
    ]
    spent = [
        {"method": method, "pattern": p, "forward": 80.0, "gram": each, "factorise": 0.0, "solve": 0.0}
        for p, slow in zip(("50%", "2:4"), seconds, strict=True)
        for method, each in (("wanda", 5.0), ("sparsegpt", slow))
    ]
    label = {"task": "sciq", "n": n, "chance": 0.25, "standard_error": 0.02}
    answers = [label | {"method": "dense", "pattern": "dense", "accuracy": 0.8}]
    for method, accuracy in (("sparsegpt", 0.72), ("wanda", wanda)):
        answers.append(label | {"method": method, "pattern": "50%", "accuracy": accuracy})
    return {"perplexity": perplexity, "seconds": spent, "zero_shot": answers}


@pytest.mark.parametrize(("perplexity", "word"), [(100.0, "holds"), (20.0, "does not hold"), (40.5, "undecided")])
def test_below_magnitude(perplexity, word):
    assert claims.THAN_MAGNITUDE.judge(made_up(magnitude=perplexity)).words == word


@pytest.mark.parametrize(
    ("seconds", "word"), [((24.0, 25.0), "holds"), ((2.0, 2.1), "does not hold"), ((4.0, 20.0), "undecided")]
)
def test_each_pattern_is_one_timing(seconds, word):
    assert claims.SLOWER.judge(made_up(seconds=seconds)).verdict == word


@pytest.mark.parametrize(
    ("sparsegpt", "word"), [((7.0, 6.0), "holds"), ((0.01, 0.009), "does not hold"), ((0.2, 2.0), "undecided")]
)
def test_each_pattern_is_one_timing_on_a_gpu_too(sparsegpt, word):
    sides = {
        "SparseGPT": zip(("50 %", "2:4"), sparsegpt, strict=True),
        "Wanda": [("50 % of each row", 0.1), ("2:4", 0.1)],
    }
    rows = [
        {"contest": f"32 blocks, {method}", "side": side, "median_seconds": seconds}
        for method, times in sides.items()
        for side, seconds in times
    ]
    assert claims.SLOWER_ON_A_GPU.judge({"benches": {"pruning": {"rows": rows}}}).verdict == word


@pytest.mark.parametrize(
    ("wanda", "n", "word"), [(0.78, 4000, "holds"), (0.50, 4000, "does not hold"), (0.70, 400, "undecided")]
)
def test_three_points_are_close(wanda, n, word):
    assert claims.ACCURACY_CLOSE.judge(made_up(wanda=wanda, n=n)).verdict == word


def perplexities(sparsegpt, magnitude):
    """Times the dense perplexity of 20."""
    label = {"corpus": "wikipedia", "standard_error": 0.2}
    table = [label | {"method": "dense", "pattern": "dense", "perplexity": 20.0}]
    for method, times in (("sparsegpt", sparsegpt), ("magnitude", magnitude)):
        table.append(label | {"method": method, "pattern": "50%", "perplexity": 20.0 * times})
    return {"perplexity": table}


@pytest.mark.parametrize(
    ("sparsegpt", "magnitude", "word"),
    [
        (1.2, 9.0, "holds"),
        (2.0, 1.2, "does not hold"),
        (2.0, 9.0, "mixed (holds in magnitude's loss; fails in SparseGPT's loss)"),
        (1.5, 1.5, "undecided"),
    ],
)
def test_sparsegpt_stays_low_where_magnitude_fails(sparsegpt, magnitude, word):
    found = claims.KEEPS_LOW.judge(perplexities(sparsegpt, magnitude))
    assert found.words == word
    assert f"{magnitude:.3g}" in found.ours


def test_sizes_in_the_papers_table(monkeypatch):
    """OPT-125M: 36.85 / 27.66 = 1.332; OPT-350M: 31.58 / 22.00 = 1.435, which is more."""
    found = claims.LARGER_LOSE_LESS.judge()
    assert found.words == "mixed (holds in 6; fails in 2)"
    assert found.estimates["OPT-350M after OPT-125M"].value == pytest.approx(math.log(1.3323 / 1.4355), abs=1e-4)
    assert claims.KEEPS_LOW.published_value == "0.98 and 5,150 times (OPT-175B); 1.33 and 7 times (OPT-125M)"
    sizes = ["OPT-125M", "OPT-350M", "OPT-1.3B"]
    for ratios, word in (((2.0, 1.5, 1.2), "holds"), ((1.2, 1.5, 2.0), "does not hold")):
        table = [{"model": m, "method": "dense", "pattern": "dense", "perplexity": 10.0} for m in sizes]
        table += [
            {"model": m, "method": "sparsegpt", "pattern": "50%", "perplexity": 10.0 * ratio}
            for m, ratio in zip(sizes, ratios, strict=True)
        ]
        monkeypatch.setattr(claims, "load_published", lambda _, table=table: {"tables": {"opt": table}})
        assert claims.LARGER_LOSE_LESS._judged(()).words == word
