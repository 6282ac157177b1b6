"""What a verdict on the claims page consists of: the words, the effects as they are shown, and where they come from."""

import json

import pytest

from course_lib.lessons.common import results
from course_lib.lessons.common.claim import Claim, Judgement
from course_lib.lessons.common.verdicts import Effect
from course_lib.workbook.ledger import judge
from course_lib.workbook.ledger.judge import judged, origin
from course_lib.workbook.ledger.record import Label, Statement

YES, NO, OPEN = (Effect(value=value, error=0.1, n=8) for value in (1.0, -1.0, 0.1))


def claim(**changed):
    fields = {"id": "kv-made", "text": "it is so", "quantity": "what", "refuted": "the opposite"}
    return Claim(**fields | {"measure": lambda *_: YES} | changed)


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """A lesson with one result and one claim."""
    monkeypatch.setattr(results, "_LESSONS", tmp_path)
    path = tmp_path / "kv" / "made.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"command": "course reproduce made", "seed": 3, "tables": {}}), encoding="utf-8")
    return lambda record: monkeypatch.setattr(judge, "all_claims", lambda: {record.id: record})


def test_a_verdict_comes_with_our_value_and_its_origin(lesson):
    record = claim(results=("kv/made",), measure=lambda result: {"a": YES, "b": NO})
    lesson(record)
    found = judged("kv-made")
    assert (found.claim.text, found.words, found.verdict) == ("it is so", "mixed (holds in a; fails in b)", "mixed")
    assert list(found.effects.values()) == [YES, NO]
    assert (found.n, *origin(record)) == ("8", ("course reproduce made",), (3,))
    assert found.ours == "+1.00 ± 0.10 nats per token (a), -1.00 ± 0.10 nats per token (b)"


def test_an_unknown_id_is_refused(lesson):
    lesson(claim())
    with pytest.raises(ValueError, match="got the claim 'kv-other'; expected one of kv-made"):
        judged("kv-other")


@pytest.mark.parametrize(
    ("results", "measure", "message"),
    [
        (("kv/absent",), lambda _: YES, "absent.json, which is not there"),
        (("kv/made",), lambda result: result["rows"], r"kv-made cannot be computed.*KeyError: 'rows'"),
        (("kv/made",), lambda _: int("x"), r"measure it again \(course reproduce made --no-resume\)"),
    ],
)
def test_a_result_that_is_missing_or_incomplete_is_an_error(lesson, results, measure, message):
    lesson(claim(results=results, measure=measure))
    with pytest.raises(ValueError, match=message):
        judged("kv-made")


@pytest.mark.parametrize(("sizes", "said"), [((8, 8), "8"), ((3, 29, 5), "3 to 29"), ((8, None), "–"), ((None,), "–")])
def test_sample_sizes(sizes, said):
    effects = {f"case {i}": Effect(value=1.0, error=0.1, n=n) for i, n in enumerate(sizes)}
    assert Judgement(claim(), effects, effects, "holds", "").n == said


@pytest.mark.parametrize("fields", [{}, {"claim": "kv-made", "label": Label.THEOREM, "why_not": "proved in 2008"}])
def test_a_statement_is_judged_or_says_why_not(fields):
    with pytest.raises(ValueError, match="statement x-1: got .*; expected exactly one of them"):
        Statement(id="x-1", at="a slide", says="It is so.", **fields)


@pytest.mark.parametrize("fields", [{"why_not": "proved in 2008"}, {"claim": "kv-made", "label": Label.THEOREM}])
def test_a_label_comes_with_its_reason(fields):
    with pytest.raises(ValueError, match="statement x-1: got label=.* and why_not=.*; give both"):
        Statement(id="x-1", at="a slide", says="It is so.", **fields)
