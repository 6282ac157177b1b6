"""One page for each student of the challenge: the recipe in words, its bytes and losses, what they earned and why.

Nothing of another student is on it: neither a place nor who handed in the same. Of a failure of the grader nothing is
told but that it is one.
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

TO_SPARE = 0.01  # of the dense model's bytes: less is room for nothing
HALF_A_POINT = 0.5
KINDS = {
    "weights": "weights and codes",
    "scales": "scales and zero points",
    "indices": "indices: which weights are stored",
    "selectors": "what chooses neurons",
}


class Line(NamedTuple):
    """Of one domain: nats above the dense model with their error, the same of both anchors, and points."""

    domain: str
    mean: float
    error: float
    uniform: float
    master: float
    points: float
    counts: bool


def html(work: HandedIn, row: Row, found: Found | None, anchors: Anchors) -> str:
    """A student's page, complete in itself. Points come from the row, all else from what was measured."""
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
    """Each domain, compared with the two models that define the points; what it is worth were the budget kept."""
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
    """Where the bytes held go, the most first."""
    stored = side.found.by_kind or side.found.by_part
    named = [(KINDS.get(kind, kind), size) for kind, size in stored.items()]
    named.append((f"cache after {side.found.length} tokens", side.found.cache))
    return sorted((each for each in named if each[1]), key=lambda each: -each[1])


def hints(row: Row, lines: list[Line]) -> list[str]:
    """What follows from the numbers, and nothing else: how much has to go, or what is left of the budget."""
    side = row.judged
    left = {
        "held": (side.budget.held - side.held) * side.dense.held / 1e6,
        "read a token": (side.budget.read - side.read) * side.dense.read / 1e6,
    }
    if not side.within:
        kind, size = sizes(side)[0]
        over = [
            f"{-megabytes:.1f} MB of what is {what} have to go." for what, megabytes in left.items() if megabytes < 0
        ]
        return [*over, f"Most of what is held is {kind}: {size / 1e6:.1f} MB."]
    if row.points == FULL:
        return []
    said = (
        f"The budget leaves {left['held']:.1f} MB that may be held and {left['read a token']:.1f} MB that may be read"
    )
    if min(left.values()) >= TO_SPARE * side.dense.read / 1e6:
        said += ": more bits, smaller groups, fewer zeros or more slots of the cache fit into it"
    return [f"{said}.", *_apart(lines)]


def _apart(lines: list[Line]) -> list[str]:
    """Where one text costs points that the other does not."""
    least = next(line for line in lines if line.counts)
    most = max(lines, key=lambda line: line.points)
    if most.points - least.points < HALF_A_POINT:
        return []
    return [
        f"The text that counts is {least.domain}; on {most.domain} the same model is worth {most.points:.1f} points."
    ]
