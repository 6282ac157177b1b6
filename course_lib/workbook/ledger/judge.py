"""The verdict on a lesson's claim, and the commands and seeds that measured it."""

from course_lib.lessons.common.claim import Claim, Judgement
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
    """Return the commands that measured the results of a claim, and their seeds."""
    found = [load(path) for path in claim.paths]
    seeds = dict.fromkeys(each["seed"] for each in found if "seed" in each)  # `make gpu` has one for each bench
    return tuple(each["command"] for each in found), tuple(seeds)
