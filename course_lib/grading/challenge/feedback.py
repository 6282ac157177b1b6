"""One page for each student of the challenge: the recipe in words, its bytes and losses, its points and the reason.

It contains nothing about other students: neither a place nor who handed in the same recipe. Of a failure of the grader
it says only that there was one.
"""

from typing import NamedTuple

from course_lib.compose.challenge.judge import Judged
from course_lib.compose.challenge.points import Anchors, by_domain, worth
from course_lib.compose.challenge.texts import NAMES
from course_lib.grading.challenge.evaluation import Found
from course_lib.grading.challenge.handed_in import HandedIn
from course_lib.grading.challenge.ranking import FULL, LESSON, Row
from course_lib.grading.report.feedback_row import STATES
from course_lib.grading.report.templates import render
from course_lib.measure.paired import mean_and_error

TO_SPARE = 0.01  # of the dense model's bytes: a smaller part is not worth showing
HALF_A_POINT = 0.5
KINDS = {
    "weights": "weights and codes",
    "scales": "scales and zero points",
    "indices": "indices: which weights are stored",
    "selectors": "selectors of neurons",
}


class Line(NamedTuple):
    """One domain: the loss increase in nats with its error, the loss increases of both anchors, and points."""

    domain: str
    mean: float
    error: float
    uniform: float
    master: float
    points: float
    counts: bool


def html(work: HandedIn, row: Row, found: Found | None, anchors: Anchors) -> str:
    """Make the page of a student. Points come from the row, all other numbers from the measurement."""
    side = row.judged
    lines = losses(side, found, anchors) if side else []
    return render(
        "challenge.html",
        row=row,
        lesson=LESSON,
        full=FULL,
        recipe=work.recipe.in_words() if work.recipe else [],
        notes=work.notes,
        side=side,
        lines=lines,
        sizes=sizes(side) if side else [],
        states=STATES,
        hints=hints(row, lines) if side else [],
    )


def losses(side: Judged, found: Found, anchors: Anchors) -> list[Line]:
    """Compare each domain with the two models that define the points; points as if within the budget."""
    shares = by_domain(found.measured.losses, anchors)
    least = min(shares, key=shares.__getitem__)
    return [
        Line(
            NAMES[domain],
            mean,
            error,
            _above(anchors.uniform[domain], anchors.dense[domain]),
            _above(anchors.master[domain], anchors.dense[domain]),
            worth(shares[domain]),
            domain == least,
        )
        for domain, (mean, error) in side.losses.items()
    ]


def _above(windows: tuple[float, ...], dense: tuple[float, ...]) -> float:
    return mean_and_error([loss - its for loss, its in zip(windows, dense, strict=True)])[0]


def sizes(side: Judged) -> list[tuple[str, int]]:
    """List the stored bytes by kind, largest first."""
    stored = side.found.by_kind or side.found.by_part
    named = [(KINDS.get(kind, kind), size) for kind, size in stored.items()]
    named.append((f"cache after {side.found.length} tokens", side.found.cache))
    return sorted((each for each in named if each[1]), key=lambda each: -each[1])


def hints(row: Row, lines: list[Line]) -> list[str]:
    """Say how many megabytes the recipe is above its budget, or how many are left."""
    side = row.judged
    left = {
        "stored": (side.budget.held - side.held) * side.dense.held / 1e6,
        "read per token": (side.budget.read - side.read) * side.dense.read / 1e6,
    }
    if not side.within:
        kind, size = sizes(side)[0]
        over = [f"The bytes {what} are {-n:.1f} MB above the limit." for what, n in left.items() if n < 0]
        return [*over, f"The largest part of the stored bytes is {kind}: {size / 1e6:.1f} MB."]
    if row.points == FULL:
        return []
    stored, read = left["stored"], left["read per token"]
    said = f"Within the budget, {stored:.1f} MB more can be stored and {read:.1f} MB more read per token"
    if min(left.values()) >= TO_SPARE * side.dense.read / 1e6:
        said += ": enough for more bits, smaller groups, fewer zeros or more slots of the cache"
    return [f"{said}.", *_apart(lines)]


def _apart(lines: list[Line]) -> list[str]:
    """Say on which text the model earns more points than on the one that counts."""
    least = next(line for line in lines if line.counts)
    most = max(lines, key=lambda line: line.points)
    if most.points - least.points < HALF_A_POINT:
        return []
    return [
        f"The text that counts is {least.domain}; on {most.domain} the same model is worth {most.points:.1f} points."
    ]
