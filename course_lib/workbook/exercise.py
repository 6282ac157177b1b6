"""What an exercise is: cases, a fair comparison, and the wrong answers that have a name."""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from course_lib import discover
from course_lib import lessons as exercises
from course_lib.workbook.call import Recorded
from course_lib.workbook.compare import close


@dataclass(frozen=True)
class Case:
    """One input to try. Arguments are copied before every call, so a function may work in place."""

    name: str
    arguments: tuple


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong implementation. The explanation is said to the student who wrote it.

    Args:
        also: the same mistake written differently, where the difference shows (a division by zero, a tie).
    """

    name: str
    explanation: str
    function: Callable | Recorded
    also: tuple[Callable | Recorded, ...] = ()

    @property
    def functions(self) -> tuple[Callable | Recorded, ...]:
        """Every way in which the mistake is known to be written."""
        return self.function, *self.also


@dataclass(frozen=True)
class Variant:
    """A right answer written differently; it must pass."""

    name: str
    function: Callable


@dataclass(frozen=True)
class Exercise:
    """One step for the student to write.

    Args:
        id: lesson file and name, such as "wanda.score".
        difficulty: 1 (one line) to 5 (needs an idea of one's own).
        cases: hand-made cases first, then ones drawn from the generator.
        agree: (got, expected) -> None when they agree, else a sentence on where they first differ. It may ask for
            the case as a third argument, where what is right depends on the input (ties, for one).
        picture: (case, got, expected) -> a figure shown beside a wrong or right answer, where one helps.
    """

    id: str
    title: str
    difficulty: int
    minutes: int
    points: int
    reference: Callable | Recorded
    cases: Callable[[torch.Generator], list[Case]]
    mistakes: tuple[Mistake, ...]
    also_right: tuple[Variant, ...]
    hints: tuple[str, ...]
    agree: Callable[..., str | None] = close
    picture: Callable[[Case, Any, Any], Figure] | None = None


def lessons() -> list:
    """The modules that hold the exercises, in the order of their lessons."""
    return sorted(discover.modules(exercises), key=lambda module: module.LESSON)


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order."""
    return [exercise for module in lessons() for exercise in module.EXERCISES]


def find(exercise_id: object) -> Exercise:
    """The exercise of that id.

    Raises:
        ValueError: naming the nearest ids that exist.
    """
    try:
        module = importlib.import_module(f"{exercises.__name__}.{str(exercise_id).split('.')[0]}")
        return next(e for e in module.EXERCISES if e.id == exercise_id)
    except (ModuleNotFoundError, StopIteration, ValueError):
        ids = [exercise.id for exercise in all_exercises()]
        near = difflib.get_close_matches(str(exercise_id), ids, n=3, cutoff=0.4)
        advice = f"did you mean {' or '.join(near)}?" if near else f"expected a lesson and a name, such as {ids[0]!r}."
        raise ValueError(
            f"got exercise {exercise_id!r}, which does not exist; {advice} `course progress` lists them all."
        ) from None
