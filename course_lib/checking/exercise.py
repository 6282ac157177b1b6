"""Exercises: cases, a fair comparison, and named mistakes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.checking.call import Recorded
from course_lib.checking.compare import up_to_rounding


@dataclass(frozen=True)
class Case:
    """One input to try. Arguments are copied before every call, so a function may change them."""

    name: str
    arguments: tuple


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong implementation, with an explanation for students who wrote it.

    Args:
        functions: its variants, i.e. different ways to write the same mistake. Their results may differ in details,
            such as a division by zero or a tie.
    """

    name: str
    explanation: str
    functions: tuple[Callable | Recorded, ...]

    @property
    def function(self) -> Callable | Recorded:
        """The first variant."""
        return self.functions[0]


@dataclass(frozen=True)
class Variant:
    """A right answer that is written differently; it must pass."""

    name: str
    function: Callable


@dataclass(frozen=True)
class Trivial:
    """An answer without the idea of the exercise. The cases that it gets right earn no points on their own.

    Args:
        name: the action, as the beginning of "... is enough": "always choosing the first".
    """

    name: str
    function: Callable | Recorded


@dataclass(frozen=True, eq=False)  # equal only to itself, so that results about it can be stored under it
class Exercise:
    """One step for the student to write.

    Args:
        id: the folder of its lesson and its file there, such as "wanda.score".
        difficulty: from 1 (one line) to 5 (needs an original idea).
        cases: hand-made cases first, then cases drawn from the generator.
        agree: (got, expected, case) -> None if they agree, otherwise a sentence on where they first differ. The case is
            for exercises with several right answers, for example because of ties.
        picture: (case, got, expected) -> a figure to show with an answer, if a figure helps.
        library: the course's own function with the same arguments and result, if an experiment of the lesson calls one:
            `mine` replaces it with a right answer.
        trivial: answers without the idea that checking/trivial.py does not generate itself.
        by_heart: indices of the cases that are the same for every generator, if some cases cannot be random.
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
    agree: Callable[[Any, Any, Case], str | None] = up_to_rounding
    picture: Callable[[Case, Any, Any], "matplotlib.figure.Figure"] | None = None
    library: Callable | None = None
    trivial: tuple[Trivial, ...] = ()
    by_heart: tuple[int, ...] | None = None
