"""No answer without the idea earns more than a tenth of any exercise, which are discovered; the reference earns all.

Named mistakes are taken out, since these have a limit of their own that would hide a gap.
"""

import dataclasses
import functools

import pytest
import torch
from forgeries import LAZY as FROM_THE_ANSWER
from lazy_answers import LAZY

from course_lib.checking.call import Outcome, call
from course_lib.checking.compare import plain
from course_lib.checking.judge import conclude
from course_lib.checking.known import Known, difference
from course_lib.grading.hidden_cases import hidden_cases
from course_lib.workbook.catalogue import all_exercises
from course_lib.workbook.checks import SEED

SEEDS = (4201, 4202, 4203, 4204, 4205)
MOST = 0.1
EXERCISES = {exercise.id: dataclasses.replace(exercise, mistakes=()) for exercise in all_exercises()}


@functools.cache
def drawn(name, seed):
    """The cases that a student has: with the hidden ones, as they are graded, and those of `check`, as in nbgrader."""
    exercise, generator = EXERCISES[name], torch.Generator().manual_seed(seed)
    visible = exercise.cases(generator)
    return Known(exercise, visible + hidden_cases(exercise, generator)), Known(exercise, visible)


def shares(exercise, seed, outcomes):
    """Of the points, in both ways of grading."""
    return [conclude(known, outcomes[: len(known.cases)]).share for known in drawn(exercise.id, seed)]


def outcomes(exercise, seed, function):
    return [call(function, case.arguments) for case in drawn(exercise.id, seed)[0].cases]


@pytest.fixture(params=EXERCISES.values(), ids=EXERCISES)
def exercise(request):
    return request.param


def test_every_exercise_has_lazy_answers():
    assert set(LAZY) == set(EXERCISES), "write answers without the idea for each exercise in lazy_answers.py"
    assert all(len(answers) >= 3 for answers in LAZY.values())


def test_the_reference_earns_everything(exercise):
    for seed in SEEDS:
        assert shares(exercise, seed, outcomes(exercise, seed, exercise.reference)) == [1.0, 1.0]


def test_lazy_answers_earn_a_tenth_at_most(exercise):
    for seed in SEEDS:
        for number, lazy in enumerate(LAZY[exercise.id]):
            done = outcomes(exercise, seed, lazy)
            assert max(shares(exercise, seed, done)) <= MOST, f"number {number}, seed {seed}"


def test_constants_and_inputs_in_the_shape_of_the_answer_earn_a_tenth_at_most(exercise):
    for seed in SEEDS:
        known, _ = drawn(exercise.id, seed)
        for name, lazy in FROM_THE_ANSWER.items():
            done = [Outcome(plain(lazy(*each))) for each in zip(known.cases, known.expected, strict=True)]
            assert max(shares(exercise, seed, done)) <= MOST, f"{name}, seed {seed}"


def test_enough_cases_need_the_idea(exercise):
    """One of those of `check` at least, so that an answer with the idea can be told from one without."""
    for seed in (SEED, *SEEDS):
        known, seen = drawn(exercise.id, seed)
        hard = [at for at in range(len(known.cases)) if not known.ways([at])]
        assert len(hard) >= 2, f"seed {seed}: only {[known.cases[at].name for at in hard]}"
        assert hard[0] < len(seen.cases), f"seed {seed}: only hidden ones: {[known.cases[at].name for at in hard]}"


def test_what_an_exercise_lists_is_right_about_something(exercise):
    known, _ = drawn(exercise.id, SEEDS[0])
    for trivial in exercise.trivial:
        done = outcomes(exercise, SEEDS[0], trivial.function)
        agreeing = [difference(exercise, *each) is None for each in zip(known.cases, done, known.expected, strict=True)]
        assert any(agreeing), f"{trivial.name} is never right: leave it out"
