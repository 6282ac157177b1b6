"""What sparsity costs step by step, from made-up perplexities."""

import math

import pytest
from claimed import one

from course_lib.lessons.wanda.tables import sweep_verdict

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


def test_a_sweep_that_climbs():
    text = sweep_verdict(made_up())
    assert one(text, "each step of sparsity") == "holds"
    assert one(text, "half of the weights by magnitude") == one(text, "30 % by magnitude") == "holds"
    assert one(text, "half of the weights by Wanda") == one(text, "2:4 by Wanda") == "holds"


def test_a_sweep_that_stays():
    text = sweep_verdict(made_up(magnitude=(1.2, 1.3), wanda=(2.0, 2.0), two_four=3.0))
    assert one(text, "each step of sparsity").startswith("holds partly (3 of 4)")  # the last step costs nothing
    assert one(text, "half of the weights by magnitude") == one(text, "30 % by magnitude") == "does not hold"
    assert one(text, "half of the weights by Wanda") == one(text, "2:4 by Wanda") == "not at this scale"


@pytest.mark.parametrize("words", ["half of the weights by Wanda", "2:4 by Wanda", "30 % by magnitude"])
def test_windows_that_disagree_decide_nothing(words):
    assert one(sweep_verdict(made_up(shaky=True)), words).startswith("cannot tell")
