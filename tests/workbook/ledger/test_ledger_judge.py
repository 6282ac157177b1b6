"""How a lesson's line becomes a verdict with numbers: made-up lessons, good ones and broken ones."""

import json
import math
from pathlib import Path

import pytest

from course_lib import kernels
from course_lib.lessons.common.verdicts import Effect, overheard, verdict
from course_lib.workbook.ledger import judge, record
from course_lib.workbook.ledger.judge import judged, shown
from course_lib.workbook.ledger.record import Claim, Rule

YES, NO, OPEN = (Effect(value=value, error=0.1, n=8) for value in (1.0, -1.0, 0.1))


def lesson():
    first = verdict([YES, NO])
    return f"some numbers\n  Claim: the first\nis long: {first}\nmore\nClaim: the second: {verdict(OPEN)}"


def rule(lines=lesson, line="the second", **changed):
    return Rule(**{"lesson": "kv", "results": (), "lines": lines, "line": line, "effect": "", "refuted": ""} | changed)


def test_verdicts_are_heard_inside_alone_and_in_their_order():
    verdict(YES)
    with overheard() as outer:
        verdict(YES)
        with overheard() as inner:
            verdict(NO)
        verdict([OPEN, NO])
    assert [said.words for said in outer] == ["holds", "does not hold (fails in 1 of 2)"]
    assert [said.words for said in inner] == ["does not hold"]
    assert outer[1].effects == (OPEN, NO)


def test_a_verdict_that_fails_is_not_heard_and_listening_ends():
    with pytest.raises(ValueError, match="got no effect"), overheard() as heard:
        verdict([])
    assert heard == []
    verdict(YES)
    assert heard == []


def test_a_line_is_found_with_its_effects():
    found = judged(rule())
    assert found.line == "the second"
    assert (found.words, found.verdict) == ("cannot tell (about 4 times the sample would: n = 32)", "cannot tell")
    assert found.effects == (OPEN,)
    found = judged(rule(line="the first"))
    assert (found.line, found.words, found.verdict) == ("the first is long", "holds partly (1 of 2)", "holds partly")
    assert (found.n, found.commands, found.seeds) == ("8", (), ())


def test_of_two_verdicts_on_each_claim_the_first_counts():
    def lines():
        return "\n".join(f"Claim: {name}: {verdict(a)}; over all: {verdict(b)}" for name, a, b in pairs)

    pairs = [("one", YES, OPEN), ("two", NO, YES)]
    assert judged(rule(lines, "one")).words == "holds"
    assert judged(rule(lines, "two")).words == "does not hold"


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (lesson, "the third", "got 0 lines with 'the third' among 2 claims and 2 verdicts"),
        (lesson, "the ", "got 2 lines"),
        (lambda: f"{verdict(YES)}{lesson()}", "the second", "among 2 claims and 3 verdicts"),
        (lambda: verdict(YES) and "Claim: this: does not hold", "this", "the verdict in its place is 'holds'"),
        (lambda: {}["perplexity"], "this", "KeyError: 'perplexity'.*partial or of another version"),
        (lambda: int("x"), "this", "partial or of another version: measure it anew"),
    ],
)
def test_a_lesson_and_a_ledger_that_disagree_are_an_error(lines, line, message):
    with pytest.raises(ValueError, match=message):
        judged(rule(lines, line))


def test_where_it_comes_from_and_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "LIBRARY", tmp_path / "course_lib")
    path = tmp_path / "course_lib" / "lessons" / "kv" / "made.json"
    with pytest.raises(ValueError, match="made.json, which is not there"):
        judged(rule(results=("kv/made",)))
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"command": "course reproduce made", "seed": 3}), encoding="utf-8")
    found = judged(rule(results=("kv/made",), refuted="now it is there"))
    assert (found.commands, found.seeds) == (("course reproduce made",), (3,))
    path.write_text(json.dumps({"tables": {"rows": []}, "steps": {"2048: dense": {}}}), encoding="utf-8")
    there = ("kv/made", "kv/made: rows", "kv/made: 2048: dense")
    assert all(record.is_there(name) for name in there)
    assert not any(record.is_there(name) for name in ("kv/made: tasks", "kv/made: 4096: dense", "kv/other"))
    assert record.result_path("bench/cpu") == Path(kernels.__path__[0]) / "bench" / "results" / "cpu.json"


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ([Effect(value=0.123456, error=0.0456)], "+0.123 ± 0.046"),
        ([Effect(value=12.3, error=1.2), Effect(value=-0.8, error=0.13)], "+12.3 ± 1.2, -0.80 ± 0.13"),
        ([Effect(value=844.0, error=48.0)], "+844 ± 48"),
        ([Effect(value=0.1, error=1e-9)], "+0.10000 ± 0.00000"),  # five digits at most
        ([Effect(value=0.46666, error=0.0)], "+0.467 (counted)"),
        ([Effect(value=0.5, error=math.inf)], "+0.5 (error not known)"),
        ([OPEN, YES, NO, OPEN], "-1.00 ± 0.10 to +1.00 ± 0.10, 4 cases"),
    ],
)
def test_effects_are_shown_with_two_digits_of_their_error(effects, said):
    assert shown(effects) == said


@pytest.mark.parametrize(("sizes", "said"), [((8, 8), "8"), ((3, 29, 5), "3 to 29"), ((8, None), "–"), ((None,), "–")])
def test_sample_sizes(sizes, said):
    effects = tuple(Effect(value=1.0, error=0.1, n=n) for n in sizes)
    assert judge.Judged("", "holds", effects, (), ()).n == said


@pytest.mark.parametrize(
    "fields", [{}, {"why_not": "a theorem", "awaits": "kv/x"}, {"rule": rule(), "why_not": "a theorem"}]
)
def test_a_claim_is_judged_or_says_why_not(fields):
    with pytest.raises(ValueError, match="claim x-1: got .*; expected exactly one of them"):
        Claim(id="x-1", at="a slide", says="It is so.", **fields)
