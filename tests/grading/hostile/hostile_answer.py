"""One answer that is not what it seems, as a record: the cell of a notebook, and the points that it deserves."""

import re
from dataclasses import dataclass

EXERCISES = ("wanda.score", "wanda.keep_rows", "wanda.interval")


@dataclass(frozen=True, kw_only=True)
class HostileAnswer:
    """A cell that defines `attack` with the arguments of an exercise, and its share of the points.

    Args:
        says: what it does, in a sentence.
        cell: the source. earns: of the points, from 0 to 1; what is right in substance earns all, however it looks.
        exercise: which one it answers.
        reason: a pattern to be found in what the student is told. never: one that must not be found there.
    """

    says: str
    cell: str
    earns: float
    exercise: str = "wanda.score"
    reason: str | None = None
    never: str | None = None

    def __post_init__(self) -> None:
        if not re.search(r"^def attack\(", self.cell, re.MULTILINE):
            raise ValueError(f"{self.says!r}: expected a cell that defines attack.")
        if self.exercise not in EXERCISES:
            raise ValueError(f"{self.says!r}: got exercise {self.exercise!r}; expected one of {', '.join(EXERCISES)}.")
        if not 0 <= self.earns <= 1:
            raise ValueError(f"{self.says!r}: got earns={self.earns}; expected a share of the points, 0 to 1.")
        for pattern in filter(None, (self.reason, self.never)):
            re.compile(pattern)
