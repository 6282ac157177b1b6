"""Answers that people gave: right ones written in their own way, and wrong ones, most of which must get a name.

tests/lessons/LESSON/LESSON_answers.py holds those of a lesson: RIGHT and WRONG, {exercise: {what it does: function}}.
The value of a wrong one may also be (function, name of the mistake), where only that name, or none for "", is true.
"""

import functools
import importlib.util
import sys
from pathlib import Path

import pytest
from told_answers import COUNTS, TOLD

from course_lib.checking.call import call
from course_lib.checking.judge import conclude, judge
from course_lib.checking.known import Known
from course_lib.grading import engine
from course_lib.workbook.catalogue import all_exercises, find
from course_lib.workbook.checks import SEED

FILES = sorted(Path(__file__).parent.glob("*/*_answers.py"))
SEEDS = (0, 1, 2, 3, 4)
NAMED = 0.6  # of the wrong answers of all lessons, at least


@functools.cache
def of_somebody(exercise, seed):
    """The cases of a student, those of `check` with other numbers and the hidden ones; what is right is found once."""
    visible, hidden = engine.draw(find(exercise), "somebody", seed)
    return Known(find(exercise), visible + hidden)


@functools.cache
def told(exercise, function, seed):
    """State and name of the mistake, as `check` says them with such a seed."""
    judged = judge(find(exercise), function, seed)
    return judged.state, judged.mistake.name if judged.mistake else ""


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERS = [load(path) for path in FILES]
FIRST_LESSONS = ("start", "patterns", "classic", "sparsegpt", "wanda", "kv", "sinks")
RIGHT = [(e, what, f) for module in ANSWERS for e, ways in module.RIGHT.items() for what, f in ways.items()]
WRONG = [
    (e, what, *(given if isinstance(given, tuple) else (given, None)))
    for module in ANSWERS
    for e, ways in module.WRONG.items()
    for what, given in ways.items()
]


@pytest.mark.parametrize("exercise", sorted({exercise for exercise, *_ in RIGHT}))
def test_right_answers_are_right_for_every_student_and_on_hidden_cases(exercise):
    refused = []
    for _, what, function in (each for each in RIGHT if each[0] == exercise):
        if (said := told(exercise, function, SEED)) != ("right", ""):
            refused.append(f"{what}: check says {said}")
        for seed in SEEDS:
            known = of_somebody(exercise, seed)
            found = conclude(known, [call(function, case.arguments) for case in known.cases])
            if found.state != "right":
                refused.append(f"{what}: seed {seed}, {found.case.name}: {found.difference}")
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("exercise", sorted({exercise for exercise, *_ in WRONG}))
def test_wrong_answers_are_refused_on_every_seed_and_get_no_misleading_name(exercise):
    misjudged = [
        f"{what}: seed {seed}: {state}, taken for {said!r}"
        for _, what, function, name in (each for each in WRONG if each[0] == exercise)
        for seed in SEEDS
        for state, said in [told(exercise, function, seed)]
        if state != "wrong" or (name is not None and said != name)
    ]
    assert not misjudged, "\n".join(misjudged)


def test_most_wrong_answers_get_a_name():
    named = [told(exercise, function, SEEDS[0])[1] != "" for exercise, _, function, _ in WRONG]
    assert sum(named) >= NAMED * len(named), f"{sum(named)} of {len(named)}"


def told_to(answers, exercise):
    """By what it does: what each of these answers to an exercise is told, "right" or the name of a mistake."""
    found = {what: told(exercise, function, SEED) for e, what, function, *_ in answers if e == exercise}
    return {what: name if state == "wrong" else state for what, (state, name) in found.items()}


def test_every_exercise_of_the_first_lessons_has_a_row():
    ours = {e.id for e in all_exercises() if e.id.split(".")[0] in FIRST_LESSONS}
    assert TOLD.keys() == COUNTS.keys() == ours


@pytest.mark.parametrize("exercise", TOLD)
def test_what_is_easily_misjudged_is_told_what_its_row_says(exercise):
    right, wrong = told_to(RIGHT, exercise), told_to(WRONG, exercise)
    assert not right.keys() & wrong.keys(), "one row could not tell them apart"
    assert {what: (right | wrong)[what] for what in TOLD[exercise]} == TOLD[exercise]
    numbers = len(right), len(wrong), sum(name != "" for name in wrong.values())
    assert all(found >= least for found, least in zip(numbers, COUNTS[exercise], strict=True)), numbers
