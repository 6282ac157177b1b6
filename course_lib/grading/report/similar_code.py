"""Find signals that a human may want to follow up. None of them is a verdict, and none ever costs a point.

Code is compared after normalisation (without names, comments and formatting), so short answers are often the same by
themselves. A signal is code that is long enough and that few of the class share.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from course_lib.grading.records import ExerciseResult, Result

LONG_ENOUGH = 60  # tokens; more than half of the course's own solutions are shorter, one to four lines
FEW = 0.1  # fraction of those who answered; code that more students share probably comes from the hints
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Shared:
    """Code of one exercise that several submissions share. `n` submissions have answered the exercise."""

    exercise: str
    title: str
    students: tuple[str, ...]
    n: int
    tokens: int
    right: bool

    @property
    def telling(self) -> bool:
        """Check whether the code is a signal: long enough, and shared by few."""
        return self.tokens >= LONG_ENOUGH and len(self.students) <= max(2, FEW * self.n)


@dataclass(frozen=True)
class Pair:
    """Two submissions and the telling code that they share.

    Shared wrong code is a stronger signal than shared correct code.
    """

    students: tuple[str, str]
    pieces: tuple[Shared, ...]

    @property
    def exercises(self) -> tuple[str, ...]:
        return tuple(piece.title for piece in self.pieces)

    @property
    def wrong(self) -> int:
        return sum(not piece.right for piece in self.pieces)


@dataclass(frozen=True)
class Signal:
    """A signal for one exercise of one submission."""

    student: str
    title: str
    seen: tuple[str, ...]


def shared(results: Sequence[Result]) -> list[Shared]:
    """Return every piece of code that two or more submissions share, longest first."""
    groups: dict[tuple[str, str], list[tuple[str, ExerciseResult]]] = {}
    answered: Counter[str] = Counter()
    for student, row in _answers(results):
        if row.code.strip() and row.state != "not attempted":
            answered[row.exercise] += 1
            groups.setdefault((row.exercise, row.code), []).append((student, row))
    pieces = [
        Shared(
            exercise=exercise,
            title=members[0][1].title,
            students=tuple(student for student, _ in members),
            n=answered[exercise],
            tokens=len(_TOKEN.findall(code)),
            right=all(row.state == "right" for _, row in members),
        )
        for (exercise, code), members in groups.items()
        if len({student for student, _ in members}) > 1
    ]
    return sorted(pieces, key=lambda piece: (-piece.tokens, piece.exercise, piece.students))


def pairs(pieces: Sequence[Shared]) -> list[Pair]:
    """Return pairs of submissions, sorted by the number of exercises in which they share telling code, most first."""
    common: dict[tuple[str, str], list[Shared]] = {}
    for piece in pieces:
        if piece.telling:
            for first, second in combinations(sorted(set(piece.students)), 2):
                common.setdefault((first, second), []).append(piece)
    return sorted((Pair(students, tuple(mine)) for students, mine in common.items()), key=_most_telling_first)


def _most_telling_first(pair: Pair) -> tuple:
    return -len(pair.pieces), -pair.wrong, -sum(piece.tokens for piece in pair.pieces), pair.students


def only_calls(results: Sequence[Result]) -> list[Signal]:
    """List answers whose body does nothing except call course_lib."""
    return [Signal(student, row.title, row.uses) for student, row in _answers(results) if row.only_calls]


def touched(results: Sequence[Result]) -> list[Signal]:
    """List attempts to open or import files of the grader."""
    return [Signal(student, row.title, row.touched) for student, row in _answers(results) if row.touched]


def _answers(results: Sequence[Result]) -> Iterator[tuple[str, ExerciseResult]]:
    return ((result.student, row) for result in results for row in result.exercises)
