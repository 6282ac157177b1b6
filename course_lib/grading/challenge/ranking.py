"""Turn measurements into one row per student: points, place, bytes, and the reason for lost points.

Students are ranked by points, rounded to a tenth; with equal points, fewer stored bytes come first. Equal recipes share
a place.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.challenge.judge import Judged, judged
from course_lib.compose.challenge.points import FULL, Anchors, points
from course_lib.compose.challenge.texts import NAMES
from course_lib.grading.challenge.evaluation import Found, Job
from course_lib.grading.challenge.handed_in import HandedIn
from course_lib.grading.records import FAILED, ExerciseResult, Result, State

EXERCISE, TITLE, LESSON = "capstone.challenge", "The challenge", "12 Capstone"
DIGITS = 1  # of points: smaller differences do not affect places


@dataclass(frozen=True, kw_only=True)
class Row:
    """The row of one student.

    Args:
        place: among recipes within the budget; 0 for the others.
        swing: by how much leaving out one window would move the points, at most.
        failed: whether the grader is to blame for a missing measurement.
    """

    student: str
    origin: str
    state: State
    points: float = 0.0
    place: int = 0
    judged: Judged | None = None
    swing: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()
    failed: bool = False

    @property
    def result(self) -> Result:
        """Return the row in the form of the other lessons' results, for the same tables."""
        row = ExerciseResult(EXERCISE, TITLE, self.points, FULL, self.state, self.reason, notes=self.notes)
        problem = f"{FAILED}: {self.reason}" if self.failed else self.reason if self.state == "no submission" else ""
        known = {"problem": problem, "notes": self.notes, "grader_failed": self.failed}
        return Result(self.student, LESSON, self.origin, 0, (row,), **known)


def job_of(work: HandedIn) -> Job | None:
    """Return what to measure; equal recipes with equal files are one job."""
    return None if work.recipe is None else Job(work.recipe.as_json(), work.files)


def rows(
    works: Sequence[HandedIn], found: Mapping[Job, Found], dense: Found, anchors: Anchors, budget: Budget
) -> list[Row]:
    """Return one row per student, the best first."""
    jobs = Counter(filter(None, map(job_of, works)))
    unplaced = [_row(_noted(work, jobs), found.get(job_of(work)), dense, anchors, budget) for work in works]
    best = sorted((row for row in unplaced if _keeps(row)), key=_order)
    places: dict[tuple[float, int], int] = {}
    placed = [replace(row, place=places.setdefault(_order(row), index)) for index, row in enumerate(best, 1)]
    return placed + [row for row in unplaced if not _keeps(row)]


def _noted(work: HandedIn, jobs: Counter[Job]) -> HandedIn:
    """Return the submission, with a note if other students submitted the same recipe."""
    n = jobs[job_of(work)] - 1
    return work if n < 1 else replace(work, notes=(*work.notes, f"the same recipe as {n} other{'s' * (n > 1)}"))


def _keeps(row: Row) -> bool:
    return row.judged is not None and row.judged.within


def _order(row: Row) -> tuple[float, int]:
    return -row.points, row.judged.found.held


def _row(work: HandedIn, found: Found | None, dense: Found, anchors: Anchors, budget: Budget) -> Row:
    row = Row(student=work.student, origin=work.origin, state="failed", notes=work.notes)
    if work.problem or found is None:
        state: State = "no submission" if work.missing else "failed"
        return replace(row, state=state, reason=work.problem or "it was not measured.")
    if found.problem:
        return replace(row, reason=found.problem, failed=found.failed)
    side = judged(found.measured, dense.measured, budget)
    if not side.within:
        return replace(row, state="wrong", judged=side, reason=f"The recipe is above the budget: {side.of_budget}.")
    earned = points(found.measured.losses, anchors)
    value = round(earned.points, DIGITS)
    mean, error = side.losses[earned.domain]
    return replace(
        row,
        state="right" if value == FULL else "partly" if value else "wrong",
        points=value,
        judged=side,
        swing=earned.swing,
        reason=f"{mean:+.3f} ± {error:.3f} nats per token compared with the dense model on {NAMES[earned.domain]}; "
        f"{side.of_budget}.",
    )
