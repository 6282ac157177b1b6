"""Write a result in the format of Gradescope, results.json."""

from typing import Any

from course_lib.checking.judge import uncounted
from course_lib.grading.records import CaseResult, ExerciseResult, Result
from course_lib.grading.report.text import clean

VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")
TEXT = 4000  # characters of one exercise's output


def results(result: Result, hidden_cases: str, seconds: float, warning: str = "") -> dict[str, Any]:
    """Return the result as Gradescope shows it: two parts per exercise, with the points of visible and hidden cases."""
    head = [warning, result.problem, *result.notes, f"{result.lesson}: {len(result.exercises)} exercises"]
    tests = []
    for number, exercise in enumerate(result.exercises, 1):
        tests += _tests(exercise, str(number), hidden_cases)
    return {
        "execution_time": round(seconds),
        "output": _shown(head),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def _tests(exercise: ExerciseResult, number: str, hidden_cases: str) -> list[dict[str, Any]]:
    """Return the points of an exercise, split by its cases. If no case ran, the visible part has all the points."""
    unseen = [case for case in exercise.cases if case.hidden]
    if not unseen or hidden_cases == "visible":
        return [_test(exercise, number, exercise.points, exercise.of, "visible", exercise.cases)]
    share = len(unseen) / len(exercise.cases)
    of = round(exercise.of * share, 2)
    points = round(exercise.of / len(exercise.cases) * sum(case.difference is None for case in unseen), 2)
    points = min(points, exercise.points)
    seen = tuple(case for case in exercise.cases if not case.hidden)
    first = _test(exercise, number, round(exercise.points - points, 2), round(exercise.of - of, 2), "visible", seen)
    second = _test(exercise, f"{number}.1", points, of, hidden_cases, tuple(unseen))
    return [first, second | {"name": f"{exercise.title}: cases that the notebook lacks"}]


def _test(
    exercise: ExerciseResult,
    number: str,
    points: float,
    of: float,
    visibility: str,
    cases: tuple[CaseResult, ...],
) -> dict[str, Any]:
    return {
        "name": exercise.title,
        "number": number,
        "score": points,
        "max_score": of,
        "status": "passed" if cases and all(case.difference is None for case in cases) else "failed",
        "visibility": visibility,
        "output": _shown(_said(exercise, cases)),
        "output_format": "text",  # never "html": a submission can influence the text
    }


def _shown(lines: list[str]) -> str:
    """Return lines that a submission can influence, without control characters, direction marks and lone surrogates."""
    whole = "\n".join(line for line in lines if line)[:TEXT]
    return "\n".join(clean(line, TEXT) for line in whole.splitlines())


def _said(exercise: ExerciseResult, cases: tuple[CaseResult, ...]) -> list[str]:
    """Return the lines for the student, without expected values of hidden cases."""
    lines = [f"{case.name}: {case.difference or 'right'}" for case in cases]
    if exercise.state != "right" and not all(case.difference is None for case in cases):
        lines += [f"This looks like: {exercise.mistake}. {exercise.explanation}"] if exercise.mistake else []
        lines += [f"Points: {uncounted(exercise.lowered)}."] if exercise.lowered else []
        lines += [f"Hint: {exercise.hint}"] if exercise.hint else []
    return [*lines, *exercise.notes] if cases else [exercise.reason, *exercise.notes]
