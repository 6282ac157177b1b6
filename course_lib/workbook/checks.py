"""`check`, which is called in the cell below every exercise."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from course_lib.checking.exercise import Exercise
from course_lib.checking.judge import Verdict, judge
from course_lib.workbook import hints, progress, show, stale
from course_lib.workbook.catalogue import exercises_of, find
from course_lib.workbook.session import strict

SEED = 0  # fixed, so that a student sees the same case again after a change
_newest: dict[str, tuple[Callable, Verdict]] = {}  # of each exercise: the function judged last


class CheckFailed(AssertionError):
    """In strict mode, a check whose answer is not right."""


def check(exercise_id: object, function: object) -> None:
    """Check a function against an exercise and show the verdict.

    In a student's hands it never raises. With COURSE_STRICT=1 it raises CheckFailed unless the answer is right.
    """
    try:
        verdict = _verdict(exercise_id, function)
    except Exception as error:
        if strict():
            raise
        show.message(f"This check could not run: {error}")
        return
    record, not_counted = _record(verdict)
    _show(verdict, record)
    if verdict.state != "right":
        with contextlib.suppress(Exception):  # a frontend without buttons must not hide the verdict
            hints.button(verdict.exercise)
    if not_counted:
        show.message(not_counted)
    if strict() and verdict.state != "right":
        raise CheckFailed(f"{exercise_id} is {verdict.state}: {verdict.difference}")


def _verdict(exercise_id: object, function: object) -> Verdict:
    exercise = find(exercise_id)
    if not callable(function):
        raise ValueError(
            f"got a value of type {type(function).__name__} for {exercise_id}; pass the function itself, without "
            "calling it."
        )
    _newest[exercise.id] = function, judge(exercise, function, SEED)
    return _newest[exercise.id][1]


def checked(exercise: Exercise) -> Callable | None:
    """Return the function that was last checked for an exercise."""
    return _newest.get(exercise.id, (None, None))[0]


def last_checked() -> str:
    """Return the last exercise that was checked; empty if there was none."""
    return next(reversed(_newest), "")


def judged(exercise: Exercise, function: Callable) -> Verdict:
    """Check a function now, without showing or counting anything.

    A right answer is not run again. Another one is, because the functions that it calls may have changed.
    """
    last, verdict = _newest.get(exercise.id, (None, None))
    return verdict if last is function and verdict.state == "right" else judge(exercise, function, SEED)


def _record(verdict: Verdict) -> tuple[progress.Record, str]:
    """Record this attempt; return the record, and a message if it could not be written."""
    attempted = verdict.state != "not attempted"
    try:
        record = progress.update(verdict.exercise.id, attempts=int(attempted), solved=verdict.state == "right")
    except OSError as error:  # a full disk or a read-only home must not hide the verdict from a student
        return progress.Record(hints=hints.n_seen(verdict.exercise)), progress.not_kept(error)
    return record, ""


def _show(verdict: Verdict, record: progress.Record) -> None:
    """Show the card of a check. Each later hint shows it again in its place, with the next hint to ask for."""
    surroundings, display_id = _surroundings(verdict), uuid4().hex

    def with_hints(n_shown: int) -> None:
        show.verdict(verdict, replace(record, hints=n_shown), surroundings, display_id, update=True)

    show.verdict(verdict, record, surroundings, display_id)
    hints.keep_card(verdict.exercise, with_hints if verdict.state != "right" else None)


def _surroundings(verdict: Verdict) -> show.Surroundings:
    """Collect progress, cells that are out of date, and one way to solve the exercise."""
    exercise, right = verdict.exercise, verdict.state == "right"
    exercises = exercises_of(exercise.id.split(".")[0]).EXERCISES
    later = exercises[exercises.index(exercise) + 1 :]
    try:
        in_lesson = progress.in_lesson({other.id: other.points for other in exercises})
    except OSError:  # as above
        in_lesson = ""
    return show.Surroundings(
        progress=in_lesson,
        next_title=later[0].title if later else "",
        stale=stale.mark(exercise.id, exercise.title) if right else (),
        solution=_solution(exercise.id) if right and not strict() else "",
        waits_for=find(verdict.waits_for).title if verdict.waits_for else "",
    )


def _solution(exercise_id: str) -> str:
    """The course's own solution, in a checkout; empty in a student's copy, which has no masters."""
    from course_lib.workbook import masters  # a slow import, which only a right answer needs

    try:
        return masters.solution(exercise_id)
    except Exception:  # for example, an unfinished master; the answer is right nevertheless
        return ""
