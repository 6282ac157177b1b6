"""The verdict on a lesson's claim, its effects as text, and the commands and seeds that measured them."""

from collections.abc import Collection

from course_lib.lessons.common.claim import MOST_LISTED, Claim, Judgement, with_error
from course_lib.lessons.common.verdicts import Effect
from course_lib.measure.result_files import load
from course_lib.workbook.ledger.everything import all_claims


def judged(claim_id: str) -> Judgement:
    """Judge a claim by the committed results.

    Raises:
        ValueError: no claim has this id, or a result is missing, incomplete or of another version.
    """
    claims = all_claims()
    if claim_id not in claims:
        raise ValueError(f"got the claim {claim_id!r}; expected one of {', '.join(sorted(claims))}.")
    return claims[claim_id].judge()


def origin(claim: Claim) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The commands that wrote the results of a claim, and their seeds."""
    found = [load(path) for path in claim.paths]
    seeds = dict.fromkeys(each["seed"] for each in found if "seed" in each)  # `make gpu` has one for each bench
    return tuple(each["command"] for each in found), tuple(seeds)


def shown(effects: Collection[Effect]) -> str:
    """Effects as they are printed: all of a few, the least and the largest of many."""
    if len(effects) <= MOST_LISTED:
        return ", ".join(map(_shown, effects))
    ends = (min(effects, key=lambda e: e.value), max(effects, key=lambda e: e.value))
    return f"{_shown(ends[0])} to {_shown(ends[1])}, {len(effects)} cases"


def _shown(effect: Effect) -> str:
    """Two digits of the error; an effect that was counted has none, and one whose error is not known says so."""
    counted = " (counted)" if effect.error == 0 else ""
    return with_error(effect.value, effect.error, signed=True) + counted
