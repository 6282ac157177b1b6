"""One attack on the sandbox as a record: the cell of a notebook, and what must become of it."""

import re
from dataclasses import dataclass, replace
from typing import Any, get_args

from submitting import SMALL

from course_lib.grading.records import Limits, Status
from course_lib.grading.sandbox.bubblewrap import Mode

BRIEF = replace(SMALL, seconds=1.0)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A cell that defines `attack(x)`, and what its answer must be. What is None is not looked at.

    Args:
        says: what it does, in a sentence.
        machines: on which it makes sense, all when empty; modes: in which kinds of sandbox it must fail.
        status, reason: of the answer; reason, outcome and error are patterns to be found.
        outcome: in everything that is said about the answer. error: in that of the first case.
        value: what both cases return. most: the largest number that they may return.
        touched: in the name of something of the grader's that it is seen to open.
        n_outcomes: how many cases have an outcome. n_right: how many of them are right, none when it is None.
        not_noted: a note that must not be in the feedback.
        later: the cell of the next submission to the same sandbox, which defines `later(x)`.
        later_value: what that returns on both cases.
    """

    says: str
    cell: str
    limits: Limits = SMALL
    machines: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ("shared", "single")
    status: Status | None = None
    reason: str | None = None
    outcome: str | None = None
    error: str | None = None
    value: Any = None
    most: float | None = None
    touched: str | None = None
    n_outcomes: int | None = None
    n_right: int | None = None
    not_noted: str | None = None
    later: str | None = None
    later_value: Any = None

    def __post_init__(self) -> None:
        looked_at = ("status", "reason", "outcome", "error", "value", "most", "touched", "n_outcomes", "n_right")
        if all(getattr(self, name) is None for name in (*looked_at, "not_noted")):
            raise ValueError(f"{self.says!r} asserts nothing; expected one of {', '.join(looked_at)}.")
        if not re.search(r"^def attack\(", self.cell, re.MULTILINE):
            raise ValueError(f"{self.says!r}: expected a cell that defines attack(x).")
        if self.status is not None and self.status not in get_args(Status):
            raise ValueError(f"{self.says!r}: got status {self.status!r}; expected one of {get_args(Status)}.")
        if not set(self.modes) <= set(get_args(Mode)) or not self.modes or isinstance(self.machines, str):
            raise ValueError(f"{self.says!r}: got modes {self.modes} and machines {self.machines}.")
        if (self.later is None) != (self.later_value is None):
            raise ValueError(f"{self.says!r}: expected later and later_value, or neither.")
        for pattern in filter(None, (self.reason, self.outcome, self.error)):
            re.compile(pattern)
