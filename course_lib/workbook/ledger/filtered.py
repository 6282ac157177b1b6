"""The ledger's claims by verdict and lesson, as a notebook prints them."""

from course_lib.lessons.common.tables import COLUMNS, listed
from course_lib.lessons.common.verdicts import WORDS
from course_lib.workbook.ledger.everything import all_claims
from course_lib.workbook.ledger.judge import judged, shown
from course_lib.workbook.ledger.page import AWAITED, NOT_MEASURED, lesson_of, verdict_of
from course_lib.workbook.ledger.record import Claim

VERDICTS = (*WORDS, NOT_MEASURED, AWAITED)
BESIDE = "–"  # in place of a lesson's number


def table(verdict: str | None = None, lesson: str | None = None) -> str:
    """Claims with that verdict, of that lesson: what is claimed, what was found, where.

    Args:
        verdict: one of VERDICTS; all when None. lesson: its number, such as "07"; all when None.

    Raises:
        ValueError: another word, or a lesson that judges no claim.
    """
    if verdict not in (None, *VERDICTS):
        raise ValueError(f"got verdict {verdict!r}; expected one of {listed(VERDICTS)}, or None for all.")
    known = sorted({_number(claim) for claim in all_claims()} - {BESIDE})
    if lesson not in (None, *known):
        raise ValueError(f"got lesson {lesson!r}; expected one of {listed(known)}, or None for all.")
    chosen = [c for c in all_claims() if verdict in (None, verdict_of(c)) and lesson in (None, _number(c))]
    lines = [line for claim in chosen for line in _lines(claim)]
    return "\n".join([*lines, f"{len(chosen)} of {len(all_claims())} claims"])


def _lines(claim: Claim) -> list[str]:
    """Two lines at most: the claim; then its verdict with the effects behind it, or why there is none."""
    found = shown(judged(claim.rule).effects) if claim.rule else claim.why_not or claim.awaits
    said = f"{_number(claim)}  {claim.id}: {claim.says}", f"      {verdict_of(claim)}: {found}"
    return [text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…" for text in said]


def _number(claim: Claim) -> str:
    return lesson_of(claim.rule)[:2] if claim.rule else BESIDE
