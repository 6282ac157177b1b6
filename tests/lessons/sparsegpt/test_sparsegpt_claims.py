"""SparseGPT compared with magnitude and Wanda, from made-up rows."""

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
    ("wanda", "n", "word"), [(0.78, 4000, "holds"), (0.50, 4000, "does not hold"), (0.70, 400, "undecided")]
)
def test_three_points_are_close(wanda, n, word):
    assert claims.ACCURACY_CLOSE.judge(made_up(wanda=wanda, n=n)).verdict == word
