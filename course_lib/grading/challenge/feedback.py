"""One page for each student of the challenge: what was earned and why, where the bytes are, and what is left.

Nothing of other students is on it, and of the hidden text nothing but the losses.
"""

import json
from typing import NamedTuple

from course_lib.compose.challenge.points import FULL, Anchors
from course_lib.compose.challenge.texts import NAMES
from course_lib.grading.challenge.handed_in import HandedIn
from course_lib.grading.challenge.ranking import LESSON, Row
from course_lib.grading.report.feedback_row import STATES
from course_lib.grading.report.templates import render
from course_lib.measure.paired import mean_and_error

SPARE = 0.02  # of the dense bytes: less room than that is not worth a hint
CACHE = "cache"


class Domain(NamedTuple):
    """A text: what the recipe loses on it beside the dense model, the two anchors, and what that would earn."""

    name: str
    mean: float
    error: float
    uniform: float
    master: float
    points: float
    counts: bool


class Limit(NamedTuple):
    """One side of the budget, as shares of the dense model's bytes."""

    what: str
    megabytes: float
    share: float
    most: float


class Held(NamedTuple):
    """A part of what is held."""

    part: str
    megabytes: float
    share: float  # of all that is held


def html(row: Row, work: HandedIn, anchors: Anchors) -> str:
    """A student's page, complete in itself.

    Args:
        row: as it was ranked. work: what was handed in. anchors: the three models that points are measured by.
    """
    kind, word, _ = STATES[row.state]
    limits = _limits(row)
    return render(
        "challenge.html",
        row=row,
        lesson=LESSON,
        full=FULL,
        kind=kind,
        word=word,
        domains=_domains(row, anchors),
        limits=limits,
        held=_held(row),
        recipe=_as_text(work),
        advice=_advice(row, limits),
    )


def _domains(row: Row, anchors: Anchors) -> list[Domain]:
    if row.judged is None:
        return []
    counts = min(row.by_domain, key=row.by_domain.__getitem__)
    return [
        Domain(
            name=NAMES[domain],
            mean=mean,
            error=error,
            uniform=_above_dense(anchors, "uniform", domain),
            master=_above_dense(anchors, "master", domain),
            points=row.by_domain[domain],
            counts=domain == counts,
        )
        for domain, (mean, error) in row.judged.losses.items()
    ]


def _above_dense(anchors: Anchors, which: str, domain: str) -> float:
    pairs = zip(getattr(anchors, which)[domain], anchors.dense[domain], strict=True)
    return mean_and_error([mine - its for mine, its in pairs])[0]


def _limits(row: Row) -> list[Limit]:
    side = row.judged
    if side is None:
        return []
    return [
        Limit("held", side.found.held / 1e6, side.held, side.budget.held),
        Limit("read for a token", side.found.read / 1e6, side.read, side.budget.read),
    ]


def _held(row: Row) -> list[Held]:
    if row.judged is None:
        return []
    found = row.judged.found
    parts = {**found.by_part, CACHE: found.cache}
    most_first = sorted(parts.items(), key=lambda item: -item[1])
    return [Held(part, size / 1e6, size / found.held) for part, size in most_first if size]


def _as_text(work: HandedIn) -> str:
    """The recipe as it was understood."""
    return "" if work.recipe is None else json.dumps(json.loads(work.recipe.as_json()), indent=1)


def _advice(row: Row, limits: list[Limit]) -> list[str]:
    """What follows from the numbers, and nothing else."""
    over = [limit for limit in limits if limit.share > limit.most]
    if over:
        heaviest = _held(row)[0]
        return [
            *(
                f"{limit.megabytes * (1 - limit.most / limit.share):.1f} MB too many are {limit.what}: "
                f"{limit.share:.1%} of the dense model's bytes, where {limit.most:.1%} are allowed."
                for limit in over
            ),
            f"Most of what is held is “{heaviest.part}”, {heaviest.share:.0%}.",
        ]
    if not limits or row.points == FULL:
        return []
    spare = [limit for limit in limits if limit.most - limit.share > SPARE]
    if len(spare) < len(limits):
        tight = [limit.what for limit in limits if limit not in spare]
        return [
            f"The budget is used up: no room is left in the bytes {' and '.join(tight)}. What helps is a better use."
        ]
    return [
        "The budget leaves room: "
        + " and ".join(f"{limit.most - limit.share:.1%} of the dense model's bytes {limit.what}" for limit in spare)
        + ". Spend it on the part that loses most."
    ]
