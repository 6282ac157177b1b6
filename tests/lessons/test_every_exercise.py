"""Conformance of every exercise of every lesson: discovered, no list.

The reference passes, the stub is "not attempted", each named mistake is rejected and recognised by its own name on
three seeds, each variant passes, hints exist, and a picture that raises does not fail the check.
"""

import dataclasses
import html
from pathlib import Path

import pytest

from course_lib.checking.judge import judge
from course_lib.workbook import show
from course_lib.workbook.catalogue import all_exercises, lessons
from course_lib.workbook.progress import Record

EXERCISES = all_exercises()
SEEDS = (0, 1, 2)
MISTAKES = [(e, m, f) for e in EXERCISES for m in e.mistakes for f in m.functions]
VARIANTS = [(e, v) for e in EXERCISES for v in e.also_right]


def names(known):
    return [f"{exercise.id}-{other.name}" for exercise, other, *_ in known]


@pytest.fixture(params=EXERCISES, ids=lambda e: e.id)
def exercise(request):
    return request.param


def stub(*arguments):
    raise NotImplementedError


def test_ids_are_unique_and_name_their_file():
    ids = [e.id for e in EXERCISES]
    assert len(set(ids)) == len(ids)
    for module in lessons():
        lesson, folder = module.__name__.split(".")[-2], Path(module.__file__).parent
        files = {path.stem for path in folder.glob("*.py")} - {"__init__", "common"}
        assert {e.id for e in module.EXERCISES} == {f"{lesson}.{name}" for name in files}
        assert module.LESSON[:2].isdigit()


def test_description_is_complete(exercise):
    assert 1 <= exercise.difficulty <= 5
    assert exercise.minutes > 0
    assert exercise.points > 0
    assert 1 <= len(exercise.hints) <= 3
    assert len(exercise.mistakes) >= 3
    assert len(exercise.also_right) >= 1
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    for text in (exercise.title, *exercise.hints, *(m.explanation for m in exercise.mistakes)):
        assert text.strip()
        assert "!" not in text.replace("!=", "")


@pytest.mark.parametrize("seed", SEEDS)
def test_reference_is_right(exercise, seed):
    verdict = judge(exercise, exercise.reference, seed)
    assert (verdict.state, verdict.n_right) == ("right", verdict.n_cases), verdict.difference
    assert verdict.n_cases >= 2


def test_stub_is_not_attempted(exercise):
    verdict = judge(exercise, stub)
    assert verdict.state == "not attempted"
    assert f'hint("{exercise.id}")' in show.as_text(verdict, Record())


@pytest.mark.parametrize(
    "nonsense", [lambda *a: None, lambda *a: "yes", lambda *a: object(), lambda: 1, lambda *a: a[99]]
)
def test_nonsense_is_wrong_and_can_be_shown(exercise, nonsense):
    verdict = judge(exercise, nonsense)
    assert verdict.state == "wrong"
    assert verdict.mistake is None
    assert exercise.title in html.unescape(show.as_html(verdict, Record()))


@pytest.mark.parametrize(("exercise", "variant"), VARIANTS, ids=names(VARIANTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_written_differently_pass(exercise, variant, seed):
    verdict = judge(exercise, variant.function, seed)
    assert verdict.state == "right", f"{verdict.case.name}: {verdict.difference}"


@pytest.mark.parametrize(("exercise", "mistake", "function"), MISTAKES, ids=names(MISTAKES))
@pytest.mark.parametrize("seed", SEEDS)
def test_named_mistakes_are_rejected_and_recognised(exercise, mistake, function, seed):
    verdict = judge(exercise, function, seed)
    assert verdict.state == "wrong"
    assert verdict.mistake is not None, f"not recognised: {verdict.difference}"
    assert verdict.mistake.name == mistake.name
    text = show.as_text(verdict, Record())
    assert mistake.explanation in text
    assert verdict.case.name in text


def test_pictures_draw_and_one_that_raises_fails_nothing(exercise):
    if exercise.picture is None:
        return
    wrong = judge(exercise, exercise.mistakes[0].function)
    assert "data:image/png" in show.as_html(wrong, Record()), "the picture should be drawn for a wrong answer"
    broken = dataclasses.replace(wrong, exercise=dataclasses.replace(exercise, picture=lambda *a: 1 / 0))
    assert "data:image" not in show.as_html(broken, Record())
    assert exercise.title in html.unescape(show.as_html(broken, Record()))
