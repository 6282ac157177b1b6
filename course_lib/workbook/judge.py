"""Judge a function against an exercise: run it on the cases, compare, and recognise named mistakes."""

import copy
import inspect
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from course_lib.workbook.compare import plain, short
from course_lib.workbook.exercise import Case, Exercise, Mistake

State = Literal["right", "wrong", "not attempted"]
LIMIT = 20.0  # seconds for one call


class DidNotFinish(BaseException):
    """A call ran past the limit. No Exception, so that a student's `except Exception` does not hold it up.

    A named mistake whose loop never ends raises it at once.
    """


@dataclass(frozen=True)
class Outcome:
    """What a function did on one case: a plain value, or the error it ended in."""

    value: Any = None
    error: str | None = None
    unattempted: bool = False
    endless: bool = False
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


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise DidNotFinish after so many seconds, where the platform has an alarm and this is the main thread."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_) -> None:
        raise DidNotFinish

    handler = signal.signal(signal.SIGALRM, ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # and every second after, for a bare `except:`
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        signal.setitimer(signal.ITIMER_REAL, *others)


def call(function: Callable, case: Case) -> Outcome:
    """Call a function on copies of a case's arguments. Whatever it raises becomes part of the outcome."""
    try:
        arguments = copy.deepcopy(case.arguments)
        with limited(LIMIT):
            returned = function(*arguments)
    except NotImplementedError as error:
        return Outcome(error=f"it raised NotImplementedError: {error}", unattempted=True)
    except DidNotFinish as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        said = f"it did not finish within {LIMIT:g} seconds: does the loop end?"
        return Outcome(error=said, endless=True, trace="".join(["It was here:\n", *traceback.format_list(frames)]))
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
    outcomes = []
    while len(outcomes) < len(cases) and not (outcomes and outcomes[-1].endless):  # nobody waits twice
        outcomes.append(call(function, cases[len(outcomes)]))
    if outcomes[0].unattempted:
        return Verdict(exercise, "not attempted", 0, len(cases))
    n_cases, cases = len(cases), cases[: len(outcomes)]
    expected = [plain(exercise.reference(*copy.deepcopy(case.arguments))) for case in cases]
    differences = [difference(exercise, *each) for each in zip(cases, outcomes, expected, strict=True)]
    n_right = sum(d is None for d in differences)
    if n_right == n_cases:
        return Verdict(exercise, "right", n_right, n_right, cases[0], outcomes[0].value, expected[0])
    first = next(i for i, d in enumerate(differences) if d)
    return Verdict(
        exercise,
        "wrong",
        n_right,
        n_cases,
        cases[first],
        outcomes[first].value,
        expected[first],
        differences[first],
        outcomes[first].trace,
        recognise(exercise, cases, outcomes),
    )
