"""One run for both versions of a lesson: nothing is solved, and the master's answers are asked for the same.

The notebooks that notebooks_to_check.py writes load this in their first cell. Their cells are the student's. Above each
exercise stands `%%solved`: the master's answer and its check under COURSE_STRICT=1, in a copy of the notebook's names.
What `mine` gives is what a student gets who solved nothing, the course's function; at each call the master's answer
works on the same arguments, watched by the real `mine` under COURSE_STRICT=1, and must return the same kind of value.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import Any
from unittest.mock import patch

from torch import Tensor

from course_lib.checking.judge import Verdict
from course_lib.workbook import checks, progress, yours

Solved = dict[str, tuple[Callable, Verdict]]  # of each exercise: the master's answer, and what its check said


@dataclass(frozen=True)
class Both:
    """The course's function, for a cell to go on with, and the master's answer beside it."""

    exercise: str
    course: Callable
    answer: Callable

    def __call__(self, *arguments: Any) -> Any:
        with strictly():
            solved = self.answer(*arguments)  # on copies; raises where it differs from the course's
        value = self.course(*arguments)
        if kind(solved) != kind(value):
            raise checks.CheckFailed(f"{self.exercise}: the answer gives {kind(solved)}, the course {kind(value)}")
        return value


def load(shell: Any) -> None:
    """Make `%%solved` known to a notebook, and `mine` ask both versions."""
    solved: Solved = {}
    shell.register_magic_function(partial(solve, shell, solved), "cell", "solved")
    yours.mine = partial(of_both, yours.mine, solved)


def solve(shell: Any, solved: Solved, exercise: str, source: str) -> None:
    """`%%solved wanda.score`: run the master's answer with its check; the notebook's own names stay as they are."""
    with strictly():
        exec(compile(source, shell.compile.cache(source), "exec"), dict(shell.user_ns))  # a traceback shows the line
    solved[exercise] = checks._newest.pop(exercise)


def of_both(mine: Callable, solved: Solved, exercise: str, function: Callable) -> Both:
    """What `mine` gives for a student's function, and for the master's answer."""
    course = mine(exercise, function)
    if exercise not in solved:
        raise checks.CheckFailed(f"{exercise}: no answer of the master above is right")
    with strictly(), patch.dict(checks._newest, {exercise: solved[exercise]}):
        return Both(exercise, course, mine(exercise, solved[exercise][0]))


@contextmanager
def strictly() -> Iterator[None]:
    """As where a master runs: checks raise, and what is solved does not count as the student's."""
    with patch.dict(os.environ, COURSE_STRICT="1", COURSE_HOME=str(progress.home() / "masters")):
        yield


def kind(value: Any) -> Any:
    """All that a later cell could trip over but the numbers, which `mine` compares; 3 and tensor(3.0) are alike."""
    if isinstance(value, Number) or (isinstance(value, Tensor) and value.ndim == 0 and not value.requires_grad):
        return "number"
    if isinstance(value, Tensor):
        return type(value), value.dtype, tuple(value.shape), value.device, value.requires_grad
    if isinstance(value, list | tuple):
        return type(value), *map(kind, value)
    if isinstance(value, dict):
        return type(value), *((key, kind(item)) for key, item in value.items())
    return type(value)
