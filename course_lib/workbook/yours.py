"""`mine` and `earlier`: later cells call the student's function if it is right, otherwise the course's own."""

import ast
import json
import math
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.call import call
from course_lib.checking.compare import as_tensor, plain
from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.judge import difference
from course_lib.workbook import show, stale
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import CheckFailed, judged
from course_lib.workbook.session import strict

SECONDS = 60.0  # for all calls of a student's function together: it may loop over a million weights


def mine(exercise_id: object, function: object) -> Callable:
    """Return your function if `check` accepts it, otherwise the course's, which is called in the same way.

    A message says which of the two it is. Your function is monitored on real data: if it raises, takes more than
    SECONDS in all, or differs from the course's at its first call or at the first call with another kind of result,
    the course's function takes over, with a message.
    With COURSE_STRICT=1 all of this raises CheckFailed.

    Raises:
        ValueError: for an exercise that does not exist; with COURSE_STRICT=1, or without a function, also for one whose
            answer no later cell calls.
    """
    exercise = find(exercise_id)
    if exercise.library is None and callable(function) and not strict():
        show.message(f"{exercise.title}: no later cell uses this answer, so your function is returned as it is.")
        return function
    if exercise.library is None:
        raise ValueError(f"got {exercise_id}, which no later cell calls; expected an exercise with `library`.")
    verdict = judged(exercise, function) if callable(function) else None
    if verdict and verdict.state == "right":
        stale.uses_the_students(exercise.id)
        show.message(f"With your function: {exercise.title}{'' if exercise.title.endswith('?') else '.'}")
        return _Yours(exercise, function)
    state = verdict.state if verdict else f"of type {type(function).__name__}, not a function"
    yours = " Yours" if exercise.title.endswith("?") else ": yours"
    text = (
        f"{exercise.title}{yours} is {'not right yet' if state == 'wrong' else state}. With the course's function; "
        "run this cell again after your check says Right."
    )
    if strict():
        raise CheckFailed(text)
    stale.used_the_courses(exercise.id, text)
    return exercise.library


def earlier(exercise_id: str) -> Callable:
    """Return your function from the notebook of an earlier lesson if it is right, otherwise the course's.

    It comes from the notebooks in the folder of this notebook, and is monitored like that of `mine`.

    Raises:
        ValueError: for an exercise that does not exist, or that no later cell calls.
    """
    exercise = find(exercise_id)
    if exercise.library is None:
        raise ValueError(f"got {exercise_id}, for which the course has no function; expected another exercise.")
    function = written_in(Path.cwd(), exercise.id)
    if function is not None and judged(exercise, function).state == "right":
        show.message(f"With your function from an earlier lesson: {exercise.title}")
        return _Yours(exercise, function)
    show.message(
        f"With the course's function: {exercise.title} (your notebooks have no right answer to {exercise.id})."
    )
    return exercise.library


def written_in(folder: Path, exercise_id: str) -> Callable | None:
    """Return the function that a notebook of the folder defines for an exercise; None if there is none."""
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["metadata"].get("exercise") == exercise_id]
            for source in sources:
                names: dict[str, Any] = {"torch": torch, "math": math}
                exec(compile(source, f"{path.name}: {exercise_id}", "exec"), names)
                return next(names[node.name] for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        except Exception:  # an unfinished or damaged notebook has no answer
            continue
    return None


class _Yours:
    """A right answer, applied to real data."""

    def __init__(self, exercise: Exercise, function: Callable) -> None:
        self.exercise, self.function = exercise, function
        self.seconds = 0.0
        self.like: dict[Hashable, Any] = {}  # by kind: the first result of the course's function

    def __call__(self, *arguments: Any) -> Any:
        if self.function is not None:
            begun = time.perf_counter()
            outcome = call(self.function, arguments, max(SECONDS - self.seconds, 0.01))
            self.seconds += time.perf_counter() - begun
            problem = outcome.error
            if problem is None and (kind := kind_of(outcome.value, arguments)) not in self.like:
                self.like[kind] = like = self.exercise.library(*arguments)
                problem = difference(self.exercise, Case("real data", arguments), outcome, plain(like))
            if problem is None:
                return as_the_courses(outcome.value, self.like[kind])
            self.function = None
            text = f"{self.exercise.title}, on real data: {problem}. The course's function takes over."
            if strict():
                raise CheckFailed(text)
            show.message(text)
        return self.exercise.library(*arguments)


def kind_of(value: Any, arguments: tuple) -> Hashable:
    """Summarise a result by what changes from layer to layer only when something is wrong; this costs nearly nothing.

    For a tensor: type, number of axes, which arguments have its shape, and whether it contains NaN.
    """
    if isinstance(value := as_tensor(value), Tensor):
        shapes = tuple(value.shape == other.shape for other in arguments if isinstance(other, Tensor))
        return value.dtype, value.ndim, shapes, bool(value.isnan().any())
    if isinstance(value, tuple | list):
        return tuple(kind_of(item, arguments) for item in value)
    if isinstance(value, dict):
        return tuple((key, kind_of(item, arguments)) for key, item in value.items())
    return type(value)


def as_the_courses(value: Any, like: Any) -> Any:
    """Convert a value to the kind, dtype and device of another, so that it can take its place."""
    if isinstance(like, Tensor) and isinstance(value := as_tensor(value), Tensor):
        return value.to(like)
    if isinstance(like, tuple | list) and isinstance(value, tuple) and len(like) == len(value):
        return type(like)(as_the_courses(one, other) for one, other in zip(value, like, strict=True))
    return value
