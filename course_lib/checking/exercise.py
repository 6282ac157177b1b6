"""Exercises: cases, a fair comparison, and the wrong answers that have a name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.checking.call import Recorded
from course_lib.checking.compare import up_to_rounding


@dataclass(frozen=True)
class Case:
    """One input to try. Arguments are copied before every call, so a function may work in place."""

    name: str
    arguments: tuple


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong implementation. The student who wrote it reads the explanation.

    Args:
        functions: its variants, which are different ways to write the same mistake: where they differ, the results
            differ too (a division by zero, a tie).
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
    """A right answer written differently; it must pass."""

    name: str
    function: Callable


@dataclass(frozen=True)
class Trivial:
    """An answer without the idea. Cases that it gets right earn nothing by themselves.

    Args:
        name: what you do for it, to be read before "is enough": "always choosing the first".
    """

    name: str
    function: Callable | Recorded


@dataclass(frozen=True, eq=False)  # equal only to itself, so that results about it can be stored under it
class Exercise:
    """One step for the student to write.

    Args:
        id: the folder of its lesson and its file there, such as "wanda.score".
        difficulty: 1 (one line) to 5 (needs an idea of one's own).
        cases: hand-made cases first, then ones drawn from the generator.
        agree: (got, expected, case) -> None when they agree, else a sentence on where they first differ. The case is
            for where what is right depends on the input (ties, for one).
        picture: (case, got, expected) -> a figure shown with a wrong or right answer, where one helps.
        library: the course's own function of the same arguments and result, where an experiment of the lesson calls
            one: `mine` puts a right answer in its place.
        trivial: answers without the idea that checking/trivial.py does not make up by itself.
        by_heart: the places of the cases that are the same whatever the generator, where the others cannot be drawn.
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
