"""One rule decides every verdict, by Student's t: cases worked by hand, and properties of the rule."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from course_lib.lessons.common.verdicts import (
    WORDS,
    Effect,
    decide_cases,
    of_count,
    of_examples,
    of_independent,
    of_samples,
    of_series,
    samples_needed,
    t_quantile,
    verdict,
    word_of,
)


@pytest.mark.parametrize(
    ("value", "error", "n", "word"),
    [
        (0.197, 0.1, None, "holds"),  # 1.96 errors, the normal quantile, where the sample is not known
        (0.195, 0.1, None, "undecided"),
        (-0.195, 0.1, None, "undecided"),
        (-0.197, 0.1, None, "does not hold"),
        (0.32, 0.1, 4, "holds"),  # t = 3.182 for 3 degrees of freedom
        (0.30, 0.1, 4, "undecided (n = 4; about 5 samples would decide)"),
        (1.20, 0.1, 2, "undecided (n = 2; about 3 samples would decide)"),  # t = 12.71 for one degree of freedom
        (-1.30, 0.1, 2, "does not hold"),
        (0.001, 0.03, 8, "undecided (n = 8; over 10 times as many samples would be needed)"),
        (0.10, 0.1, 12, "undecided (n = 12; about 49 samples would decide)"),  # t = 2.011 at n = 49: 0.0990 / 0.1
        (-0.10, 0.1, 12, "undecided (n = 12; about 49 samples would decide)"),
        (0.0, 0.1, 12, "undecided (n = 12; over 10 times as many samples would be needed)"),
        (0.1, math.inf, 12, "undecided"),
        (1e-9, 0.0, 30, "holds"),
        (0.0, 0.0, 30, "does not hold"),  # counted, and not more than the threshold
        (-0.1, 0.0, 30, "does not hold"),
    ],
)
def test_one_effect(value, error, n, word):
    assert verdict(Effect(value=value, error=error, n=n)) == word
    assert verdict([Effect(value=value, error=error, n=n)]) == word


@pytest.mark.parametrize(("freedom", "table"), [(1, 12.706), (3, 3.182), (9, 2.262), (30, 2.042), (math.inf, 1.960)])
def test_quantiles_are_those_of_printed_tables(freedom, table):
    assert t_quantile(freedom) == pytest.approx(table, abs=5e-4)


def test_one_sample_decides_nothing_and_freedom_can_be_given():
    assert t_quantile(0) == math.inf
    assert Effect(value=5.0, error=1.0, n=1).undecided
    assert Effect(value=2.5, error=1.0, n=100, freedom=2).undecided  # t = 4.30
    with pytest.raises(ValueError, match="got freedom=0"):
        Effect(value=1.0, error=1.0, freedom=0)


YES, NO, OPEN = (
    Effect(value=1.0, error=0.1, n=6),
    Effect(value=-1.0, error=0.1, n=6),
    Effect(value=0.1, error=0.1, n=6),
)


@pytest.mark.parametrize(
    ("cases", "word"),
    [
        ([YES, YES], "holds"),
        ([YES, OPEN], "holds partly (1 of 2)"),
        ([YES, OPEN, OPEN], "mixed (holds in 1; undecided in 2)"),  # fewer than half hold
        ([YES, NO], "mixed (holds in 1; fails in 1)"),
        ([YES, OPEN, YES, NO], "mixed (holds in 2; fails in 1; undecided in 1)"),
        ({"a": YES, "b": NO, "c": OPEN, "d": OPEN}, "mixed (holds in a; fails in b; undecided in c, d)"),
        (dict.fromkeys("abcd", YES) | {"e": NO}, "mixed (holds in 4; fails in 1)"),  # too many to name
        ([NO, NO], "does not hold"),
        ([NO, OPEN], "does not hold (fails in 1 of 2)"),  # a claim of each case is refuted by one
        ([OPEN, NO, OPEN, NO], "does not hold (fails in 2 of 4)"),
        ([OPEN, NO, OPEN], "mixed (fails in 1; undecided in 2)"),
        ([OPEN, Effect(value=0.08, error=0.1, n=20)], "undecided (n = 20; about 123 samples would decide)"),
        ([OPEN, Effect(value=0.05, error=0.1)], "undecided"),
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


@pytest.mark.parametrize("text", ["mixed (holds in a; fails in b (c))", "holds", "undecided (n = 4; about 5 samples)"])
def test_the_word_of_a_verdict_leaves_the_details_out(text):
    assert word_of(text) == text.split(" (")[0]
    assert word_of(text) in WORDS


def test_effects_from_samples_counts_and_two_results():
    assert of_samples([1.0, 2.0, 3.0], threshold=0.5) == Effect(value=1.5, error=1 / 3**0.5, n=3)
    assert of_samples(torch.tensor([2.0])) == Effect(value=2.0, error=math.inf, n=1)
    assert of_count(29, 30, more_than=0.5) == Effect(value=29 / 30 - 0.5, error=0.0)  # layers are no sample
    assert of_count(7, 10, n=10) == Effect(value=0.7, error=0.0, n=10)
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
    if effect.n > 1 and abs(abs(effect.value) - effect.margin) > 1e-6 * effect.error:
        assert verdict(scaled).split("(")[0] == verdict(effect).split("(")[0]


@given(st.floats(-10, 10).filter(bool), st.floats(0.01, 10))
def test_a_larger_error_never_decides_more(value, error):
    sure, unsure = Effect(value=value, error=error), Effect(value=value, error=2 * error)
    assert sure.undecided <= unsure.undecided
    assert not (sure.holds and unsure.fails)
    assert not (sure.fails and unsure.holds)


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.integers(2, 500))
def test_a_smaller_sample_with_the_same_error_never_decides_more(value, error, n):
    assert Effect(value=value, error=error, n=2 * n).undecided <= Effect(value=value, error=error, n=n).undecided


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.integers(2, 500))
def test_the_named_sample_is_the_smallest_that_decides(value, error, n):
    effect = Effect(value=value, error=error, n=n)
    if effect.undecided and (needed := samples_needed(effect)):
        assert needed > n
        at = {m: Effect(value=value, error=error * math.sqrt(n / m), n=m) for m in (needed - 1, needed)}
        assert at[needed].holds
        assert at[needed - 1].undecided or abs(value - at[needed - 1].margin) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_a_true_null_is_called_significant_in_one_of_20_samples(seed):
    """With n = 4 the rule of two standard errors errs in 14 % of the samples; 5 % ± 4 standard errors of 4000 here."""
    samples = torch.randn(4000, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ratios = samples.mean(dim=1).abs() / (samples.std(dim=1) / 2)
    assert abs((ratios > t_quantile(3)).double().mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 4000)
    assert (ratios > 2).double().mean() > 0.1


def test_a_series_is_worth_fewer_samples_by_hand():
    """Deviations −2 −1 0 1 2 of 1 … 5: r = (2 + 0 + 0 + 2) / 10 = 0.4, so 5 · 0.6 / 1.4 = 2.14 samples."""
    effect = of_series([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (effect.value, effect.n) == (3.0, 2)
    assert effect.error == pytest.approx(math.sqrt(2.5 / 5) * math.sqrt(5 / 2))
    alternating = [1.0, -1.0] * 4
    assert of_series(alternating) == of_samples(alternating)
    assert of_series([2.0, 2.0, 2.0]).error == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_true_null_of_a_series_is_seldom_called_significant(seed):
    """Autoregressive with r = 0.6 and n = 100: independent samples would err in 30 %; the estimate of r costs a bit."""
    noise = torch.randn(500, 100, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    series = noise.clone()
    for t in range(1, 100):
        series[:, t] = 0.6 * series[:, t - 1] + noise[:, t]
    wrong = {of: sum(not of(each).undecided for each in series) / 500 for of in (of_series, of_samples)}
    assert wrong[of_series] < 0.05 + 0.03 + 4 * math.sqrt(0.05 * 0.95 / 500)  # r is estimated too low by 0.03
    assert wrong[of_samples] > 0.2


@given(st.lists(effects, min_size=2, max_size=6), st.randoms())
def test_the_order_of_cases_does_not_matter(cases, random):
    shuffled = random.sample(cases, len(cases))
    assert verdict(shuffled) == verdict(cases)


@given(st.lists(effects, min_size=2, max_size=6))
def test_words_of_several_cases_follow_from_counts(cases):
    decided = list(decide_cases({str(i): case for i, case in enumerate(cases)}).values())
    word, n_held, n_failed = word_of(verdict(cases)), decided.count("holds"), decided.count("does not hold")
    assert (word == "holds") == all(case.holds for case in cases)
    if word != "holds":
        assert (word == "holds partly") == (len(cases) / 2 <= n_held and not n_failed)
        assert (word == "does not hold") == (n_held == 0 and 2 * n_failed >= len(cases))
        assert (word == "undecided") == (n_held == n_failed == 0)


def at_p(p, n=6):
    """An effect whose two-sided p value is p: its distance from 0 is the t quantile."""
    return Effect(value=float(stdtrit(n - 1, 1 - p / 2)), error=1.0, n=n)


def test_p_values_are_those_of_students_t():
    assert Effect(value=2.571, error=1.0, n=6).p_value == pytest.approx(0.05, abs=1e-4)  # t(5) of a printed table
    assert at_p(0.013).p_value == pytest.approx(0.013)
    assert [Effect(value=1.0, error=error).p_value for error in (0.0, math.inf)] == [0, 1]
    assert Effect(value=9.0, error=0.1, n=1).p_value == 1


def test_holms_correction_by_hand():
    """Bounds of 5 % / 4, / 3, / 2 and / 1 for four cases; nothing passes after the first case above its bound."""
    p_values = {"a": 0.012, "b": 0.016, "c": 0.03, "d": 0.04}
    decided = decide_cases({name: at_p(p) for name, p in p_values.items()} | {"exact": Effect(value=1.0, error=0.0)})
    assert decided == {"a": "holds", "b": "holds", "c": "undecided", "d": "undecided", "exact": "holds"}


def test_one_significant_case_of_16_is_no_evidence():
    cases = {str(i): at_p(0.5) for i in range(15)} | {"best": at_p(0.0105)}
    assert cases["best"].holds
    assert set(decide_cases(cases).values()) == {"undecided"}


def test_a_claim_of_all_cases_needs_no_correction():
    assert verdict([at_p(0.04)] * 10) == "holds"
    assert verdict([at_p(0.04)] * 9 + [at_p(0.5)]) == "undecided (n = 6; about 47 samples would decide)"


@pytest.mark.parametrize("seed", range(3))
def test_of_many_true_nulls_any_is_decided_in_one_of_20_tries(seed):
    """Ten cases without an effect: uncorrected, some case is significant in 1 − 0.95^10 = 40 % of the tries."""
    samples = torch.randn(500, 10, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tries = [{str(i): of_samples(case) for i, case in enumerate(cases)} for cases in samples]
    wrong = sum(set(decide_cases(cases).values()) != {"undecided"} for cases in tries) / len(tries)
    assert wrong < 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(tries))
    assert sum(any(not case.undecided for case in cases.values()) for cases in tries) / len(tries) > 0.3


@pytest.mark.parametrize(
    ("effects", "fraction"),
    [([1.0, -1.0, -1.0], 1 / 3), ([-1.0, -1.0], 0.0), ([0.0, 0.0], 0.0), ([1.0, 1.0], 1.0)],
)
def test_one_example_is_enough_for_what_can_happen(effects, fraction):
    found = of_examples({f"case {i}": Effect(value=value, error=0.1, n=8) for i, value in enumerate(effects)})
    assert (found.value, found.error, found.n) == (fraction, 0, len(effects))
    assert verdict(found) == ("holds" if fraction else "does not hold")
