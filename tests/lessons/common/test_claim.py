"""A claim as a record: how estimates become effects, what is shown in which unit, and what is refused."""

import math
from pathlib import Path

import pytest

from course_lib import kernels
from course_lib.lessons.common.claim import (
    NATS,
    PERCENT,
    POINTS,
    TIMES,
    Claim,
    Unit,
    report,
    result_path,
    with_error,
)
from course_lib.lessons.common.verdicts import Effect

FIELDS = {"id": "kv-x", "text": "most of it is so", "quantity": "loss won", "refuted": "the opposite"}


def claim(*estimates, **changed):
    """A claim whose measure returns these estimates, or the only one."""
    found = estimates[0] if len(estimates) == 1 else {f"case {i}": each for i, each in enumerate(estimates)}
    return Claim(**FIELDS | {"measure": lambda *_: found} | changed)


GAIN = Effect(value=0.30, error=0.02, n=9)


def test_the_threshold_and_its_side_make_the_effect():
    assert claim(GAIN).judge().effects == {"": GAIN}
    above = claim(GAIN, above=0.25).judge().effects[""]
    assert (above.value, above.error, above.n) == (pytest.approx(0.05), 0.02, 9)
    below = claim(GAIN, below=0.25).judge().effects[""]
    assert below.value == pytest.approx(-0.05)
    with pytest.raises(ValueError, match="claim kv-x: got above=1 and below=2; expected one threshold"):
        claim(GAIN, above=1, below=2)


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (NATS, "+0.300 ± 0.020 nats per token"),
        (PERCENT, "30.0 ± 2.0 %"),
        (POINTS, "+30.0 ± 2.0 percentage points"),
        (TIMES, "1.350 ± 0.027 times"),  # e^0.3, and its error e^0.3 · 0.02
        (Unit("rank correlation"), "0.300 ± 0.020 rank correlation"),
    ],
)
def test_our_value_stands_in_the_claims_unit(unit, said):
    assert claim(GAIN, unit=unit).judge().ours == said


@pytest.mark.parametrize(
    ("value", "error", "n", "said"),
    [
        (math.log(22), 0.5, 8, "22 times (95 %: 6.7 to 72)"),  # t = 2.36 for 7 degrees of freedom
        (math.log(22), 0.5, 2, "22 times (95 %: 0.038 to over 100)"),  # t = 12.7 for one
        (math.log(6721), 0.8, 8, "over 100 times"),
        (math.log(22), 0.1, 8, "22.0 ± 2.2 times"),
        (math.log(150), 0.0, 8, "over 100 times"),
    ],
)
def test_ratios_with_a_large_error_are_shown_with_their_interval(value, error, n, said):
    assert TIMES(Effect(value=value, error=error, n=n)) == said


def test_what_the_sources_own_table_says_was_not_found_here():
    assert "    In the source's own table, loss won: +0.300" in str(claim(GAIN, from_source=True).judge())


def test_a_threshold_is_written_in_the_claims_unit_with_its_reason():
    assert claim(GAIN).counts_as == "more than 0 nats per token"
    assert claim(GAIN, below=math.log(1.05), unit=TIMES, because="the paper's 5 %").counts_as == (
        "less than 1.05 times: the paper's 5 %"
    )
    assert claim(GAIN, above=0.95, unit=PERCENT).counts_as == "more than 95 %"


def test_other_thresholds_that_change_the_verdict_are_named():
    found = claim(GAIN, above=0.2, other_thresholds=(0.1, 0.28, 0.5), unit=PERCENT).judge()
    assert found.flips == {"28 %": "undecided (n = 9; about 38 samples would decide)", "50 %": "does not hold"}
    assert claim(GAIN, above=0.2).judge().flips == {}
    two = claim(GAIN, Effect(value=0.5, error=0.02, n=9), above=0.2, other_thresholds=(0.4,)).judge()
    assert two.flips == {"0.4 nats per token": "mixed (holds in case 1; fails in case 0)"}


def test_a_few_cases_are_named_and_many_are_summarised():
    assert (
        claim(GAIN, Effect(value=0.5, error=0.0), unit=PERCENT).judge().ours == "30.0 ± 2.0 % (case 0), 50 % (case 1)"
    )
    many = [Effect(value=i / 10, error=0.0) for i in range(4)]
    assert claim(*many, unit=PERCENT).judge().ours == "0 to 30 % in 4 cases"


def test_all_that_a_reader_sees():
    text = str(claim(GAIN, published=lambda: "0.4 nats (LLaMA-7B)").judge())
    assert text == (
        "Claim: most of it is so\n"
        "    Here, loss won: +0.300 ± 0.020 nats per token; published: 0.4 nats (LLaMA-7B)\n"
        "    Verdict: holds"
    )
    counted = claim(GAIN, shown=lambda *_: "29 of 30 layers", published="most layers").judge()
    assert "    Here: 29 of 30 layers; published: most layers\n" in str(counted)
    assert report([claim(GAIN), claim(GAIN)]).count("Verdict: holds") == 2


def test_a_run_that_was_stopped_may_hold_no_case():
    found = Claim(**FIELDS, measure=lambda *_: {}).judge()
    assert (found.words, found.verdict, found.ours) == ("not measured", "not measured", "–")
    assert "Verdict: not measured" in str(found)


def test_results_are_passed_in_the_order_of_their_names():
    fields = FIELDS | {"results": ("kv/a", "kv/b")}
    two = Claim(**fields, measure=lambda *results: Effect(value=float(len(results)), error=0.0))
    assert two.judge({}, {}).estimates[""].value == 2
    assert two.judge({}).estimates[""].value == 1  # one result that joins both
    with pytest.raises(ValueError, match="claim kv-x: got 3 results; expected kv/a, kv/b"):
        two.judge({}, {}, {})


def test_where_results_lie():
    assert result_path("bench/cpu") == Path(kernels.__path__[0]) / "bench" / "results" / "cpu.json"
    assert result_path("kv/measured").parts[-4:] == ("lessons", "kv", "experiments", "kv.json")


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [(12.345, 0.67, "12.35 ± 0.67"), (844, 48, "844 ± 48"), (0.5, 0, "0.5"), (0.5, math.inf, "0.5 (error not known)")],
)
def test_two_significant_digits_of_the_error(value, error, said):
    assert with_error(value, error) == said
