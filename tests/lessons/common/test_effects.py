"""Effects from rows: paired where the rows allow it, worked by hand."""

import math
import statistics

import pytest
import torch

from course_lib.lessons.common.effects import (
    accuracy_gap,
    log_gap,
    mean_of,
    of_repetitions,
    share_above,
    share_gap,
    side_by_side,
)
from course_lib.lessons.common.verdicts import Effect, verdict


def test_the_same_windows_are_compared_in_pairs():
    better = {"perplexity": 20.0, "standard_error": 5.0, "losses": [1.0, 3.0, 5.0]}
    worse = {"perplexity": 30.0, "standard_error": 6.0, "losses": [1.5, 3.4, 5.6]}
    effect = log_gap(better, worse, threshold=0.2)  # 0.5, 0.4, 0.6
    assert (effect.value, effect.error, effect.n) == (pytest.approx(0.3), pytest.approx(0.1 / 3**0.5), 3)
    assert verdict(effect) == "holds"


def test_without_pairs_both_errors_count_on_the_log():
    effect = log_gap({"perplexity": 20.0, "standard_error": 2.0}, {"perplexity": 40.0, "standard_error": 3.0})
    assert effect == Effect(value=math.log(40) - math.log(20), error=math.hypot(0.1, 0.075))


def test_questions_are_compared_in_pairs():
    row = {"task": "t", "n": 4}
    effect = accuracy_gap(row | {"accuracy": 0.75, "right": "1101"}, row | {"accuracy": 0.5, "right": "1001"})
    assert (effect.value, effect.n) == (0.25, 4)  # differences 0, 1, 0, 0; half a question more of each kind
    assert effect.error == pytest.approx(((2 / 6 - (1 / 6) ** 2) / 6) ** 0.5)
    alike = accuracy_gap(row | {"accuracy": 0.5, "right": "1001"}, row | {"accuracy": 0.5, "right": "1001"})
    assert verdict(alike).startswith("undecided")  # the same answers to four questions decide nothing
    apart = accuracy_gap(row | {"accuracy": 0.75}, row | {"accuracy": 0.5})
    assert apart == share_gap(0.75, 0.5, 4)
    assert apart.error > 0.25


def test_shares_with_few_questions_are_not_certain():
    assert share_gap(0.0, 0.0, 20).error > 0
    assert verdict(share_gap(0.0, 0.1, 20)) != "does not hold"
    assert verdict(share_gap(0.95, 0.15, 20)) == "holds"
    assert share_above(7, 10, 0.5).value == pytest.approx(0.2)
    assert verdict(share_above(10, 10, 0.5)) == "holds"


def test_means_of_independent_effects():
    mean = mean_of([Effect(value=1.0, error=0.3, n=10), Effect(value=3.0, error=0.4, n=20)])
    assert (mean.value, mean.error, mean.n) == (2.0, pytest.approx(0.25), 30)
    assert mean_of([Effect(value=1.0, error=0.3), Effect(value=1.0, error=0.3, n=2)]).n is None
    with pytest.raises(ValueError, match="no effect"):
        mean_of([])


def test_the_mean_has_welch_and_satterthwaites_degrees_of_freedom():
    """Equal errors of n = 3 and n = 5: (1 + 1)² / (1/2 + 1/4) = 16/3; a counted effect adds none."""
    pair = [Effect(value=1.0, error=0.3, n=3), Effect(value=2.0, error=0.3, n=5)]
    assert mean_of(pair).degrees_of_freedom == pytest.approx(16 / 3)
    assert mean_of([pair[0], Effect(value=1.0, error=0.0, n=30)]).degrees_of_freedom == pytest.approx(2)
    assert mean_of([Effect(value=1.0, error=0.3), Effect(value=1.0, error=0.3)]).degrees_of_freedom == math.inf


def timed(times, spread=0.1, **more):
    """A row of a bench whose 10 and 90 % points lie `spread` below and above its median, as logarithms."""
    ends = {"_low": times * math.exp(-spread), "": times, "_high": times * math.exp(spread)}
    return {f"times_anchor{end}": value for end, value in ends.items()} | more


@pytest.mark.parametrize("n", [5, 12, 30])
def test_the_error_of_a_speedup_is_that_of_the_median_of_its_repetitions(n):
    """In 2000 made-up benches whose logarithms have a standard deviation of 0.2."""
    samples = 0.2 * torch.randn(2000, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = []
    for repetitions in samples.tolist():
        deciles = statistics.quantiles(repetitions, n=10, method="inclusive")
        ends = {"_low": deciles[0], "": statistics.median(repetitions), "_high": deciles[-1]}
        row = {f"times_anchor{end}": math.exp(value) for end, value in ends.items()} | {"repetitions": n}
        errors.append(of_repetitions(row).error)
    medians = samples.quantile(0.5, dim=1)
    assert statistics.fmean(errors) == pytest.approx(medians.std().item(), rel=0.08)


def test_a_speedup_is_judged_with_the_degrees_of_freedom_of_its_repetitions():
    effect = of_repetitions(timed(1.5, repetitions=5), times=1.2)
    assert (effect.value, effect.n) == (pytest.approx(math.log(1.25)), 5)
    assert side_by_side(timed(1.5, repetitions=5), timed(1.2, repetitions=9)).n == 5
    alone = of_repetitions(timed(1.5))
    assert (alone.error, alone.n) == (pytest.approx(0.2 / 2.56), None)  # how many repetitions is not known
    assert of_repetitions(timed(1.5, repetitions=1)).undecided
