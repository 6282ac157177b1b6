"""One rule decides every verdict: an effect beside its error; worked by hand, and properties of the rule."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.common.verdicts import Effect, of_count, of_independent, of_samples, verdict


@pytest.mark.parametrize(
    ("value", "error", "n", "word"),
    [
        (0.21, 0.1, None, "holds"),
        (0.20, 0.1, None, "cannot tell"),  # two errors exactly are not more than two
        (-0.20, 0.1, None, "cannot tell"),
        (-0.21, 0.1, None, "does not hold"),
        (0.001, 0.03, 8, "cannot tell (not with 100 times the sample, n = 8)"),
        (0.10, 0.1, 12, "cannot tell (about 4 times the sample would: n = 48)"),
        (-0.10, 0.1, 12, "cannot tell (about 4 times the sample would: n = 48)"),
        (0.16, 0.1, 10, "cannot tell (about 1.6 times the sample would: n = 16)"),
        (0.0, 0.1, 12, "cannot tell (not with 100 times the sample, n = 12)"),
        (0.1, math.inf, 12, "cannot tell"),
        (1e-9, 0.0, 30, "holds"),
        (0.0, 0.0, 30, "does not hold"),  # counted, and not more than the threshold
        (-0.1, 0.0, 30, "does not hold"),
    ],
)
def test_one_effect(value, error, n, word):
    assert verdict(Effect(value=value, error=error, n=n)) == word
    assert verdict([Effect(value=value, error=error, n=n)]) == word


YES, NO, OPEN = (
    Effect(value=1.0, error=0.1, n=6),
    Effect(value=-1.0, error=0.1, n=6),
    Effect(value=0.1, error=0.1, n=6),
)


@pytest.mark.parametrize(
    ("cases", "word"),
    [
        ([YES, YES], "holds"),
        ([YES, NO], "holds partly (1 of 2)"),
        ([YES, OPEN, YES, NO], "holds partly (2 of 4)"),
        ([NO, NO], "does not hold"),
        ([NO, OPEN], "does not hold (fails in 1 of 2)"),  # a claim of each case is refuted by one
        ([OPEN, NO, OPEN, NO], "does not hold (fails in 2 of 4)"),
        ([OPEN, Effect(value=0.05, error=0.1, n=20)], "cannot tell (about 16 times the sample would: n = 320)"),
        ([OPEN, Effect(value=0.05, error=0.1)], "cannot tell"),
    ],
)
def test_several_cases(cases, word):
    assert verdict(cases) == word


def test_a_claim_on_larger_models_is_only_not_seen_here():
    assert verdict(NO, larger_models=True) == "not at this scale"
    assert verdict([NO, NO], larger_models=True) == "not at this scale"
    assert verdict([NO, OPEN], larger_models=True) == "not at this scale (fails in 1 of 2)"
    for cases in (YES, OPEN, [YES, NO]):
        assert verdict(cases, larger_models=True) == verdict(cases)


def test_effects_from_samples_counts_and_two_results():
    assert of_samples([1.0, 2.0, 3.0], threshold=0.5) == Effect(value=1.5, error=1 / 3**0.5, n=3)
    assert of_samples(torch.tensor([2.0])) == Effect(value=2.0, error=math.inf, n=1)
    assert of_count(29, 30, more_than=0.5) == Effect(value=29 / 30 - 0.5, error=0.0, n=30)
    assert verdict(of_count(1, 30, more_than=0.5)) == "does not hold"  # one layer of thirty is not "partly"
    assert verdict(of_count(15, 30, more_than=0.5)) == "does not hold"  # half of them are not most
    assert of_independent((1.0, 0.3), (3.0, 0.4), threshold=1.0) == Effect(value=1.0, error=0.5)


@pytest.mark.parametrize(
    "wrong", [{"value": math.nan, "error": 1.0}, {"value": math.inf, "error": 1.0}, {"value": 1.0, "error": -1.0}]
)
def test_an_effect_is_a_number_with_an_error(wrong):
    with pytest.raises(ValueError, match="expected a finite value"):
        Effect(**wrong)
    with pytest.raises(ValueError, match="error"):
        Effect(value=1.0, error=math.nan)
    with pytest.raises(ValueError, match="at least one"):
        Effect(value=1.0, error=1.0, n=0)
    with pytest.raises(ValueError, match="no effect"):
        verdict([])


numbers = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-9)
effects = st.builds(
    Effect, value=numbers, error=st.floats(0, 1e6).filter(lambda x: x == 0 or x > 1e-9), n=st.integers(1, 1000)
)


@given(effects)
def test_each_effect_is_exactly_one_of_three(effect):
    assert effect.holds + effect.fails + effect.undecided == 1


@given(effects, st.floats(1e-3, 1e3))
def test_units_do_not_matter(effect, unit):
    scaled = Effect(value=unit * effect.value, error=unit * effect.error, n=effect.n)
    if abs(abs(effect.value) - 2 * effect.error) > 1e-6 * effect.error:
        assert verdict(scaled).split("(")[0] == verdict(effect).split("(")[0]


@given(st.floats(-10, 10).filter(bool), st.floats(0.01, 10))
def test_a_larger_error_never_decides_more(value, error):
    sure, unsure = Effect(value=value, error=error), Effect(value=value, error=2 * error)
    assert sure.undecided <= unsure.undecided
    assert not (sure.holds and unsure.fails)
    assert not (sure.fails and unsure.holds)


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.integers(2, 500))
def test_the_sample_that_is_named_decides(value, error, n):
    effect = Effect(value=value, error=error, n=n)
    named = re.search(r"would: n = (\d+)", verdict(effect))
    if named:
        larger = Effect(value=value, error=error * math.sqrt(n / (int(named[1]) + 1)), n=int(named[1]) + 1)
        assert larger.holds


@given(st.lists(effects, min_size=2, max_size=6), st.randoms())
def test_the_order_of_cases_does_not_matter(cases, random):
    shuffled = random.sample(cases, len(cases))
    assert verdict(shuffled) == verdict(cases)


@given(st.lists(effects, min_size=2, max_size=6))
def test_words_of_several_cases_follow_from_counts(cases):
    word, n_held, n_failed = verdict(cases), sum(case.holds for case in cases), sum(case.fails for case in cases)
    if 0 < n_held < len(cases):
        assert word == f"holds partly ({n_held} of {len(cases)})"
    assert (word == "holds") == (n_held == len(cases))
    assert word.startswith("does not hold") == (n_held == 0 and n_failed > 0)
    assert (word == "does not hold") == (n_failed == len(cases))
