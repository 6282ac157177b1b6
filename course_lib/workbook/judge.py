"""Judge a function against an exercise: run it on the cases, compare, and recognise named mistakes."""

import copy
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from course_lib.workbook.compare import plain, short
from course_lib.workbook.exercise import Case, Exercise, Mistake

State = Literal["right", "wrong", "not attempted"]


@dataclass(frozen=True)
class Outcome:
    """What a function did on one case: a plain value, or the error it ended in."""

    value: Any = None
    error: str | None = None
    unattempted: bool = False
    trace: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of a check. `case`, `got`, `expected`, `difference` describe the first case that went wrong."""

    exercise: Exercise
    state: State
    n_right: int
    n_cases: int
    case: Case | None = None
    got: Any = None
    expected: Any = None
    difference: str = ""
    trace: str = ""
    mistake: Mistake | None = None


def call(function: Callable, case: Case) -> Outcome:
    """Call a function on copies of a case's arguments. Whatever it raises becomes part of the outcome."""
    try:
        returned = function(*copy.deepcopy(case.arguments))
    except NotImplementedError as error:
        return Outcome(error=f"it raised NotImplementedError: {error}", unattempted=True)
    except (Exception, SystemExit) as error:
        # The first frame belongs to this file; what follows is the student's own code.
        frames = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
        return Outcome(error=f"it raised {type(error).__name__}: {error}", trace="".join(frames))
    try:
        return Outcome(value=plain(returned))
    except Exception as error:
        return Outcome(error=f"it returned what cannot be compared: {error}")


def difference(exercise: Exercise, case: Case, outcome: Outcome, expected: Any) -> str | None:
    """None when the outcome is the expected value, else in words what is wrong with it."""
    if outcome.error:
        return outcome.error
    if outcome.value is None and expected is not None:
        return "it returned None: is there a `return`?"
    try:
        wants_case = len(inspect.signature(exercise.agree).parameters) == 3
        return exercise.agree(outcome.value, expected, *[case][:wants_case])
    except Exception:  # a comparison written for tensors may trip over whatever a student returns
        return f"got {short(outcome.value)}, expected {short(expected)}"


def recognise(exercise: Exercise, cases: list[Case], outcomes: list[Outcome]) -> Mistake | None:
    """The first named mistake whose results are the student's on every case."""
    return next((m for m in exercise.mistakes if any(_did(exercise, cases, outcomes, f) for f in m.functions)), None)


def _did(exercise: Exercise, cases: list[Case], outcomes: list[Outcome], function: Callable) -> bool:
    """Whether a function's results are those outcomes on every case. Errors alone say too little to be named."""
    if all(mine.error for mine in outcomes):
        return False
    return all(_same(exercise, case, mine, call(function, case)) for case, mine in zip(cases, outcomes, strict=True))


def _same(exercise: Exercise, case: Case, outcome: Outcome, other: Outcome) -> bool:
    if outcome.error or other.error:
        kinds = [(o.error or "").split(":")[0] for o in (outcome, other)]
        return kinds[0] == kinds[1]
    return difference(exercise, case, outcome, other.value) is None


def judge(exercise: Exercise, function: Callable, seed: int = 0) -> Verdict:
    """Run a function on the exercise's cases and say whether it is right, and if not, what is known about why."""
    cases = exercise.cases(torch.Generator().manual_seed(seed))
    outcomes = [call(function, case) for case in cases]
    if outcomes[0].unattempted:
        return Verdict(exercise, "not attempted", 0, len(cases))
    expected = [plain(exercise.reference(*copy.deepcopy(case.arguments))) for case in cases]
    differences = [difference(exercise, *each) for each in zip(cases, outcomes, expected, strict=True)]
    n_right = sum(d is None for d in differences)
    if n_right == len(cases):
        return Verdict(exercise, "right", n_right, n_right, cases[0], outcomes[0].value, expected[0])
    first = next(i for i, d in enumerate(differences) if d)
    return Verdict(
        exercise,
        "wrong",
        n_right,
        len(cases),
        cases[first],
        outcomes[first].value,
        expected[first],
        differences[first],
        outcomes[first].trace,
        recognise(exercise, cases, outcomes),
    )
