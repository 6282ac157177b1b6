"""Count the numbers of a graded class, once for the whole report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from course_lib.grading.records import ExerciseResult, Result, State

# The report's words for the states, in the order of its bars.
GROUPS = ("right", "partly right", "wrong", "did not run", "not attempted")
_GROUP: dict[State, str] = {
    "right": "right",
    "partly": "partly right",
    "wrong": "wrong",
    "failed": "did not run",
    "not found": "did not run",
    "not attempted": "not attempted",
    "no submission": "not attempted",
}


@dataclass(frozen=True)
class Facts:
    """The facts about a run besides its results.

    Args:
        started: date and time. seconds: time for grading n_graded submissions; earlier runs graded the others.
        sandbox: bwrap or none. versions: of all programs that can change a grade.
    """

    lesson: str
    seed: int
    started: str
    seconds: float | int
    n_graded: int
    sandbox: str
    versions: dict[str, str]


@dataclass(frozen=True)
class ExerciseTally:
    """One exercise over all graded submissions."""

    exercise: str
    title: str
    of: float
    groups: dict[str, int]
    points: float  # mean
    seconds: tuple[float, float]  # median, most

    @property
    def n(self) -> int:
        return sum(self.groups.values())

    def share(self, group: str) -> float:
        return self.groups[group] / self.n


@dataclass(frozen=True)
class MistakeTally:
    """One named mistake, and the students who made it."""

    exercise: str
    title: str
    name: str
    explanation: str
    students: tuple[str, ...]


def group_of(row: ExerciseResult) -> str:
    """Return the report's word for the state of an exercise."""
    return _GROUP[row.state]


def graded(results: Sequence[Result]) -> list[Result]:
    """Return the submissions that could be graded; fractions and medians are computed on these."""
    return [result for result in results if not result.problem]


def nothing_ran(result: Result) -> bool:
    """Check whether nothing of a graded submission ran, which a human should look at."""
    return not result.problem and all(group_of(row) == "did not run" for row in result.exercises)


def common_reason(result: Result) -> str:
    """Return the reason that most of its exercises share."""
    reasons = Counter(row.reason for row in result.exercises)
    return reasons.most_common(1)[0][0] if reasons else "The submission has no exercises."


def seconds_of(result: Result) -> float:
    """Return how long a submission's functions ran."""
    return float(sum(row.seconds for row in result.exercises))


def middle(values: Sequence[float | int]) -> float:
    """Return the median; 0 of an empty sequence."""
    return float(median(values)) if values else 0.0


def exercises(results: Sequence[Result]) -> list[ExerciseTally]:
    """Return one entry per exercise, in the order of first appearance."""
    rows: dict[str, list[ExerciseResult]] = {}
    for result in graded(results):
        for row in result.exercises:
            rows.setdefault(row.exercise, []).append(row)
    return [_exercise(mine) for mine in rows.values()]


def _exercise(rows: list[ExerciseResult]) -> ExerciseTally:
    groups = Counter(group_of(row) for row in rows)
    seconds = [float(row.seconds) for row in rows]
    return ExerciseTally(
        rows[0].exercise,
        rows[0].title,
        float(rows[0].of),
        {group: groups[group] for group in GROUPS},
        float(mean(row.points for row in rows)),
        (middle(seconds), float(max(seconds))),
    )


def mistakes(results: Sequence[Result]) -> list[MistakeTally]:
    """Return every named mistake that was made, most common first."""
    occurrences: dict[tuple[str, str], list[tuple[str, ExerciseResult]]] = {}
    for result in graded(results):
        for row in result.exercises:
            if row.mistake:
                occurrences.setdefault((row.exercise, row.mistake), []).append((result.student, row))
    tallies = [
        MistakeTally(exercise, pairs[0][1].title, name, pairs[0][1].explanation, tuple(student for student, _ in pairs))
        for (exercise, name), pairs in occurrences.items()
    ]
    return sorted(tallies, key=lambda tally: (-len(tally.students), tally.exercise, tally.name))
