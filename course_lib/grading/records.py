"""Records that the parts of the grader pass to each other."""

import hashlib
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from course_lib.checking.call import LIMIT, TOGETHER, Outcome

Status = Literal["ran", "not found", "not loaded", "killed"]
FAILED = "The grader failed"  # a result with `grader_failed` has a problem that begins with this
State = Literal["right", "partly", "wrong", "not attempted", "not found", "failed", "no submission"]


@dataclass(frozen=True)
class Limits:
    """The limits of a submission, and of each process that runs one of its functions. Seconds are processor time."""

    seconds: float = 2 * TOGETHER  # of one exercise
    start_seconds: float = 120.0  # until the sandbox has imported torch, on a busy machine
    memory_bytes: int = 4 * 2**30
    processes: int = 64  # threads count
    file_bytes: int = 64 * 2**20  # the sandbox's own /tmp, all in memory
    result_bytes: int = 64 * 2**20  # of one exercise
    call_seconds: float = LIMIT  # of one call, as in `check`, and of one statement of the notebook
    calls_seconds: float = TOGETHER  # of the calls on all visible cases, as in `check`; of those on all hidden ones
    submission_seconds: float = 4 * TOGETHER  # of all exercises together

    def of_submission(self, seconds: float) -> "Limits":
        """Return the limits with other seconds for a submission, of which one exercise may take half."""
        return replace(self, submission_seconds=seconds, seconds=seconds / 2)


@dataclass(frozen=True)
class Task:
    """One exercise to run: the function's usual name, and the arguments of every case.

    Args:
        hidden: arguments of the hidden cases, about which students may learn nothing.
    """

    exercise: str
    function: str
    arguments: tuple[tuple, ...]
    hidden: tuple[tuple, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The outcome of a submission's function for one exercise. It is a claim, and nothing in it can be trusted.

    Args:
        outcomes: of the cases that were run, in order, hidden ones last.
        reason: a sentence for the student when status is not "ran".
        notes: what the student should know, such as which of two definitions was taken.
        touched: attempts to open or import files of the grader.
        code: the function and its helpers without names, comments and formatting.
        uses: functions of course_lib that it calls; only_calls: whether it does nothing else.
        seconds: processor time.
        lost: whether it was ended from outside, so that its result is unknown.
    """

    exercise: str
    status: Status
    outcomes: tuple[Outcome, ...] = ()
    reason: str = ""
    _: KW_ONLY
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    touched: tuple[str, ...] = ()
    code: str = ""
    uses: tuple[str, ...] = ()
    only_calls: bool = False
    lost: bool = False


@dataclass(frozen=True)
class CaseResult:
    """One case of one exercise. `difference` is None if the answer is correct.

    `given` is what a wrong case of the notebook hands to the function, where that is short; of hidden ones it is empty.
    """

    name: str
    hidden: bool
    difference: str | None
    given: str = ""


@dataclass(frozen=True)
class ExerciseResult:
    """One row of the grades: the points of an exercise, and the reason for missing points.

    `lowered` says why the cases that are right do not all count, as `judge.Verdict.lowered` does.
    """

    exercise: str
    title: str
    points: float
    of: float
    state: State
    reason: str = ""
    _: KW_ONLY
    lowered: str = ""
    mistake: str = ""
    explanation: str = ""
    hint: str = ""
    cases: tuple[CaseResult, ...] = ()
    trace: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    touched: tuple[str, ...] = ()
    code: str = ""
    uses: tuple[str, ...] = ()
    only_calls: bool = False


@dataclass(frozen=True)
class Result:
    """The result of one student's work on one lesson. Every submission has one, whatever it contains."""

    student: str
    lesson: str  # "04 Wanda"
    origin: str
    seed: int
    exercises: tuple[ExerciseResult, ...]
    _: KW_ONLY
    problem: str = ""  # why it has no grade
    notes: tuple[str, ...] = field(default=())
    # Its grade is not known yet: the grader failed on some of it or on all. The words of a problem do not decide that:
    # a file that cannot be read is named in them, as its student has called it.
    grader_failed: bool = False

    @property
    def points(self) -> float:
        return round(sum((row.points for row in self.exercises), 0.0), 2)

    @property
    def of(self) -> float:
        return sum((row.of for row in self.exercises), 0.0)


def seed_of(seed: int, student: str, exercise: str) -> int:
    """Return the random seed of one student's inputs to one exercise, which is the same when graded again."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{student}/{exercise}".encode()).digest()[:6], "big")
