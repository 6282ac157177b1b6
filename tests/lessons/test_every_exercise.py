"""Conformance of every exercise of every lesson: discovered, no list.

`test_every_rule` holds the rules of helpers/rules_of_cases.py and rules_of_answers.py against an exercise. All rules of
an exercise are one test, since they share its cases and what each function gives on them.
"""

import contextlib
import dataclasses
import json
import traceback
from pathlib import Path

import pytest
import rules_of_answers  # noqa: F401, which adds its rules to RULES
import torch
from drawing import RULES, Subject
from further_answers import FURTHER
from lazy_answers import LAZY
from lesson_answers import wrong_answers
from rules_of_cases import STUBS
from told_answers import COUNTS, TOLD

from course_lib.checking import given
from course_lib.checking.call import limited
from course_lib.grading.hidden_cases import hidden_cases
from course_lib.workbook.catalogue import all_exercises, lessons

EXERCISES = all_exercises()
# Minutes by difficulty: each range begins where the one below it ends.
MINUTES = {1: (3, 5), 2: (5, 8), 3: (8, 12), 4: (12, 20), 5: (20, 30)}
SECONDS = 200.0  # of the processor, for all rules of an exercise
FIRST_LESSONS = ("start", "patterns", "classic", "sparsegpt", "wanda", "kv", "sinks")
NAMED = 0.6  # of the wrong answers that people gave, at least


@pytest.fixture(params=EXERCISES, ids=lambda e: e.id)
def exercise(request):
    return request.param


def test_every_rule(exercise, monkeypatch):
    """One limit for all calls: a clock for each takes longer than most of them, and none of these has no end."""
    subject = Subject(exercise)
    with limited(SECONDS):
        monkeypatch.setattr("course_lib.checking.call.limited", lambda seconds: contextlib.nullcontext())
        broken = [f"{name}: {what}" for name in RULES for what in breaches(name, subject)]
    assert not broken, "\n".join([f"{exercise.id} breaks rules:", *broken])


def breaches(name, subject):
    """Describe what breaks a rule. A rule that raises is broken too, and the others are tested nevertheless."""
    try:
        yield from RULES[name](subject)
    except Exception:
        yield traceback.format_exc()


def test_answers_are_there_for_every_exercise():
    ids = {exercise.id for exercise in EXERCISES}
    assert set(FURTHER) == ids, "write a right answer of your own for each exercise in further_answers.py"
    assert set(LAZY) == ids, "write answers without the idea for each exercise in lazy_answers.py"
    assert all(len(answers) >= 3 for answers in LAZY.values())
    assert set(COUNTS) == ids, "say in told_answers.py how many answers there are, and how many have a name"
    assert set(TOLD) == {exercise for exercise in ids if exercise.split(".")[0] in FIRST_LESSONS}


def test_most_wrong_answers_get_a_name():
    n_wrong = sum(len(wrong_answers(exercise.id)) for exercise in EXERCISES)
    n_named = sum(named for *_, named in COUNTS.values())
    assert n_named >= NAMED * n_wrong, f"{n_named} of {n_wrong}"


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
    for text in (*exercise.hints, *(m.explanation for m in exercise.mistakes)):
        assert text.endswith((".", "?", ")")), text


def test_names_are_kept_of_the_exercises_that_exist():
    assert json.loads(given.NAMES.read_text(encoding="utf-8")) == dict(sorted(STUBS.items()))


def test_minutes_grow_with_difficulty(exercise):
    least, most = MINUTES[exercise.difficulty]
    assert least <= exercise.minutes <= most, f"{exercise.minutes} minutes at difficulty {exercise.difficulty}"


def test_the_first_lesson_says_which_dtypes_there_are():
    dtypes = {
        argument.dtype
        for exercise in EXERCISES
        for case in exercise.cases(torch.Generator().manual_seed(0))
        for argument in case.arguments
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
    }
    master = (Path(__file__).parents[2] / "solutions" / "00_start_here.py").read_text(encoding="utf-8")
    assert dtypes == {torch.float32, torch.float64}
    assert "may be float32 or float64 tensors, and you may return either" in master


@pytest.mark.parametrize("lesson", sorted({exercise.id.split(".")[0] for exercise in EXERCISES}))
def test_an_exercise_without_hidden_cases_is_an_error(lesson):
    exercise = next(e for e in EXERCISES if e.id.split(".")[0] == lesson)
    with pytest.raises(ValueError, match=r"no hidden cases; expected HIDDEN\['nowhere.step'\]"):
        hidden_cases(dataclasses.replace(exercise, id="nowhere.step"), torch.Generator())
    with pytest.raises(ValueError, match=rf"HIDDEN\['{lesson}.other'\] in course_lib/grading/hidden_cases/{lesson}.py"):
        hidden_cases(dataclasses.replace(exercise, id=f"{lesson}.other"), torch.Generator())
