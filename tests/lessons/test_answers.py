"""Answers that people gave: right ones written in their own way, and wrong ones, most of which must get a name.

tests/lessons/LESSON/LESSON_answers.py holds those of a lesson: RIGHT and WRONG, {exercise: {what it does: function}}.
The value of a wrong one may also be (function, name of the mistake), where only that name, or none for "", is true.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from course_lib.checking.call import call
from course_lib.checking.judge import judge, verdict
from course_lib.grading import engine
from course_lib.workbook.catalogue import find

FILES = sorted(Path(__file__).parent.glob("*/*_answers.py"))
SEEDS = (0, 1, 2, 3, 4)
NAMED = 0.6  # of the wrong answers of all lessons, at least


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERS = [load(path) for path in FILES]
RIGHT = [(e, what, f) for module in ANSWERS for e, ways in module.RIGHT.items() for what, f in ways.items()]
WRONG = [
    (e, what, *(given if isinstance(given, tuple) else (given, None)))
    for module in ANSWERS
    for e, ways in module.WRONG.items()
    for what, given in ways.items()
]


@pytest.mark.parametrize(("exercise", "what", "function"), RIGHT, ids=lambda v: v if isinstance(v, str) else "")
def test_a_right_answer_is_right_for_every_student_and_on_hidden_cases(exercise, what, function):
    for seed in SEEDS:
        visible, hidden = engine.draw(find(exercise), "somebody", seed)
        for cases in (find(exercise).cases(torch.Generator().manual_seed(seed)), visible, hidden):
            found = verdict(find(exercise), cases, [call(function, case.arguments) for case in cases])
            assert found.state == "right", f"seed {seed}, {found.case.name}: {found.difference}"


@pytest.mark.parametrize(("exercise", "what", "function", "name"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_answer_is_refused_on_every_seed_and_gets_no_misleading_name(exercise, what, function, name):
    for seed in SEEDS:
        judged = judge(find(exercise), function, seed)
        assert judged.state == "wrong", f"seed {seed}"
        said = judged.mistake.name if judged.mistake else ""
        assert name is None or said == name, f"seed {seed}: taken for {said!r}"


def test_most_wrong_answers_get_a_name():
    named = [judge(find(exercise), function).mistake is not None for exercise, _, function, _ in WRONG]
    assert sum(named) >= NAMED * len(named), f"{sum(named)} of {len(named)}"
