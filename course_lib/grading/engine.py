"""Grade one submission: generate the inputs, let the sandbox run the functions, and judge the results outside of it."""

import hashlib
import importlib
import inspect
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Literal

import torch

from course_lib.checking import compare, judge, known, trivial
from course_lib.checking.call import DidNotFinish, limited
from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.given import given
from course_lib.grading import hidden_cases
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import (
    FAILED,
    Answer,
    CaseResult,
    ExerciseResult,
    Limits,
    Result,
    State,
    Task,
    seed_of,
)
from course_lib.grading.sandbox import session
from course_lib.workbook import catalogue

ROOT = Path(__file__).parents[2]
TEXT = 2000  # characters of any text from a submission that are stored
COMPARISON_SECONDS = 60.0  # of processor time, for one submission
VERSION = 4  # version of the rules for points; raise it when the same answers would earn different points
LOST = f"{FAILED}: a machine short of memory, or another program, ended the process of"


@dataclass(frozen=True)
class Plan:
    """The settings for grading every submission. Plain data, so that it can be sent to another machine.

    Args:
        lesson: "04 Wanda". stem: "04_wanda", the file name of the notebook.
        functions: for each exercise the usual name of its function.
        key: a digest of everything that affects points; results with another key are out of date.
    """

    lesson: str
    stem: str
    functions: dict[str, str]
    key: str
    seed: int = 0
    kind: Literal["bwrap", "none"] = "bwrap"
    limits: Limits = field(default_factory=Limits)


def plan(
    lesson: str,
    seed: int = 0,
    kind: Literal["bwrap", "none"] = "bwrap",
    root: Path = ROOT,
    seconds: float | None = None,
) -> Plan:
    """Return the plan for a lesson, which can be named "04", "wanda" or "04_wanda".

    Args:
        seconds: processor time for one submission; None takes the default of `Limits`.

    Raises:
        ValueError: if the lesson does not exist, or has no exercises.
    """
    from course_lib.workbook.masters import masters  # for the notebooks' format: seconds that no worker has to wait

    master = masters([lesson], root)[0]
    functions = catalogue.functions_checked(master.read_text(encoding="utf-8"))
    if not functions:
        raise ValueError(f"got lesson {master.stem!r}, which has no exercises to grade.")
    module = module_of(functions)
    missing = [exercise.id for exercise in module.EXERCISES if exercise.id not in functions]
    if missing:
        raise ValueError(f"{master.name} has no check of {', '.join(missing)}; every exercise needs one.")
    limits = Limits() if seconds is None else Limits().of_submission(seconds)
    return Plan(module.LESSON, master.stem, functions, _key(module, functions, seed, limits), seed, kind, limits)


def exercises_of(plan: Plan) -> tuple[Exercise, ...]:
    """Return the exercises to grade, in the order of the rows."""
    return module_of(plan.functions).EXERCISES


def module_of(functions: dict[str, str]) -> ModuleType:
    """Import the exercises of one lesson only; other lessons import packages that grading does not need."""
    return catalogue.exercises_of(_lesson(functions))


def _lesson(functions: dict[str, str]) -> str:
    return next(iter(functions)).split(".")[0]


def _key(module: ModuleType, functions: dict[str, str], seed: int, limits: Limits) -> str:
    """Return a digest of everything that can change points or feedback.

    These are the exercises with the texts of their named mistakes, the hidden cases, the comparison, the seed and the
    limits.
    """
    unseen = importlib.import_module(f"{hidden_cases.__name__}.{_lesson(functions)}")
    paths = [path for kind in ("*.py", "*.md") for path in sorted(Path(module.__file__).parent.glob(kind))]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    sources += [inspect.getsource(decides) for decides in (unseen, compare, judge, known, trivial)]
    return hashlib.sha256(repr((VERSION, sources, sorted(functions.items()), seed, limits)).encode()).hexdigest()[:16]


def grade(submission: Submission, plan: Plan) -> Result:
    """Return the result of one submission. No content of a submission makes it raise."""
    try:
        content = submission.read()
    except Exception as error:  # a broken zip or file affects this submission only, not the class
        return unreadable(submission, plan, str(error) or type(error).__name__)
    return grade_content(submission, content, plan)


def grade_content(submission: Submission, content: bytes, plan: Plan) -> Result:
    """Grade like `grade`, with the notebook already read: on a cluster the files are on another machine."""
    inputs = {exercise.id: draw(exercise, submission.student, plan.seed) for exercise in exercises_of(plan)}
    tasks = [
        Task(name, plan.functions[name], *(tuple(case.arguments for case in cases) for cases in drawn))
        for name, drawn in inputs.items()
    ]
    answers = session.run(content, tasks, plan.limits, plan.kind)
    rows, left = [], COMPARISON_SECONDS
    for exercise, answer in zip(exercises_of(plan), answers, strict=True):
        began = time.thread_time()
        rows.append(_row_within(max(left, 1.0), exercise, inputs[exercise.id], answer))
        left -= time.thread_time() - began
    lost = ", ".join(answer.exercise for answer in answers if answer.lost)
    problem = f"{LOST} {lost}." if lost else submission.problem
    return _result(submission, plan, tuple(rows), problem, grader_failed=bool(lost))


def _row_within(
    seconds: float, exercise: Exercise, drawn: tuple[list[Case], list[Case]], answer: Answer
) -> ExerciseResult:
    """Return the row of one exercise, within the remaining seconds for all comparisons."""
    try:
        # Warnings of named mistakes and references are not about the submission, and would break the progress bar.
        with warnings.catch_warnings(action="ignore"), limited(seconds):
            return exercise_result(exercise, *drawn, answer)
    except DidNotFinish as error:  # the time was over when the comparison was, but before the row was written
        return exercise_result(exercise, *drawn, replace(answer, status="not loaded", reason=_broke(error)))


def was_lost(result: Result) -> bool:
    """Check whether another attempt could help, preferably with nothing else running at the same time."""
    return result.grader_failed and result.problem.startswith(LOST)


def _result(
    submission: Submission, plan: Plan, rows: tuple[ExerciseResult, ...], problem: str, grader_failed: bool
) -> Result:
    return Result(
        submission.student,
        plan.lesson,
        submission.origin,
        plan.seed,
        rows,
        problem=problem,
        notes=submission.notes,
        grader_failed=grader_failed,
    )


def unreadable(submission: Submission, plan: Plan, problem: str, *, grader_failed: bool = False) -> Result:
    """Return a row for every exercise of a submission that could not be read, or is missing.

    Args:
        grader_failed: whether the grader is to blame; if so, --resume grades the submission again.
    """
    rows = tuple(
        ExerciseResult(exercise.id, exercise.title, 0.0, float(exercise.points), "no submission", problem[:TEXT])
        for exercise in exercises_of(plan)
    )
    return _result(submission, plan, rows, problem[:TEXT], grader_failed)


def failed(submission: Submission, plan: Plan, error: Exception) -> Result:
    """Return the rows of a submission on which the grader itself failed; --resume grades it again."""
    return unreadable(submission, plan, f"{FAILED}: {type(error).__name__}: {error}", grader_failed=True)


def draw(exercise: Exercise, student: str, seed: int) -> tuple[list[Case], list[Case]]:
    """Generate the student's own inputs: the visible cases of `check` with new random numbers, and the hidden cases."""
    generator = torch.Generator().manual_seed(seed_of(seed, student, exercise.id))
    return exercise.cases(generator), hidden_cases.hidden_cases(exercise, generator)


def exercise_result(exercise: Exercise, visible: list[Case], extra: list[Case], answer: Answer) -> ExerciseResult:
    """Return one row: points for every correct case, and the reason for missing points in words."""
    cases = visible + extra
    claimed = {
        "notes": tuple(note[:TEXT] for note in answer.notes[:20]),
        "seconds": round(answer.seconds, 2),
        "touched": tuple(name[:200] for name in answer.touched[:20]),
        "code": answer.code[: 10 * TEXT],
        "uses": tuple(name[:200] for name in answer.uses[:20]),
        "only_calls": answer.only_calls,
    }
    row = {"exercise": exercise.id, "title": exercise.title, "of": float(exercise.points), **claimed}
    if answer.status in ("not found", "not loaded"):
        state: State = "not found" if answer.status == "not found" else "failed"
        return ExerciseResult(**row, points=0.0, state=state, reason=answer.reason[:TEXT])
    try:
        with limited(COMPARISON_SECONDS):
            verdict = judge.verdict(exercise, cases, list(answer.outcomes[: len(cases)]))
    except (Exception, DidNotFinish) as error:
        return ExerciseResult(**row, points=0.0, state="failed", reason=_broke(error))
    if verdict.state == "not attempted":
        untouched = "The cell is as it was given."
        return ExerciseResult(**row, points=0.0, state="not attempted", reason=untouched)
    points = round(exercise.points * verdict.share, 2)
    state = _state(answer, verdict.n_right, len(cases))
    wrong = state not in ("right", "not attempted")
    return ExerciseResult(
        **row,
        points=points,
        state=state,
        reason="" if state == "right" else answer.reason[:TEXT] or _reason(verdict, len(visible), len(cases)),
        lowered=verdict.lowered,
        mistake=verdict.mistake.name if verdict.mistake else "",
        explanation=verdict.mistake.explanation if verdict.mistake else "",
        hint=exercise.hints[0] if wrong else "",
        cases=tuple(_case_results(exercise, cases, len(visible), verdict.differences, answer.reason[:TEXT])),
        trace=verdict.trace[-2 * TEXT :],
    )


def _broke(error: BaseException) -> str:
    """Explain to the student why there is no comparison."""
    return f"The result of the function could not be compared: {type(error).__name__}."


def _state(answer: Answer, n_right: int, n_cases: int) -> State:
    if n_right == n_cases:
        return "right"
    if answer.status == "killed" and not n_right:
        return "failed"
    return "partly" if n_right else "wrong"


def _case_results(
    exercise: Exercise, cases: list[Case], n_visible: int, differences: tuple, reason: str
) -> list[CaseResult]:
    """Return one entry per case. Of hidden cases, students learn the name and whether it was correct, nothing else."""
    results = []
    for index, case in enumerate(cases):
        missing = reason or "it was not run, because an earlier case did not finish"
        difference = differences[index] if index < len(differences) else missing
        hidden = index >= n_visible
        if difference and hidden:
            difference = "wrong"
        arguments = given(exercise, case) if difference and not hidden else ""
        results.append(CaseResult(case.name, hidden, difference[:TEXT] if difference else None, arguments))
    return results


def _reason(verdict: judge.Verdict, n_visible: int, n_cases: int) -> str:
    """Explain missing points in a sentence without the expected values of hidden cases."""
    if verdict.n_right == n_cases:
        return ""
    first = next((i for i, difference in enumerate(verdict.differences) if difference), None)
    if first is None:
        return "Not every case was run."
    where = verdict.case.name if verdict.case else ""
    return f"{where}: {verdict.difference}"[:TEXT] if first < n_visible else f"wrong on a hidden case: {where}"
