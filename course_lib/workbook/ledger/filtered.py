"""The ledger's claims by verdict and lesson, as a notebook prints them."""

from course_lib.lessons.common.results import COLUMNS, listed
from course_lib.lessons.common.verdicts import WORDS
from course_lib.workbook.ledger.everything import all_claims, all_statements
from course_lib.workbook.ledger.judge import judged
from course_lib.workbook.ledger.page import lesson_of, verdict_of
from course_lib.workbook.ledger.record import Label, Statement

VERDICTS = (*WORDS, *Label)
NO_LESSON = "–"  # in place of a lesson's number


def table(verdict: str | None = None, lesson: str | None = None) -> str:
    """List the claims with this verdict in this lesson: each statement, its verdict, and our value.

    Args:
        verdict: one of VERDICTS; all when None. lesson: its number, such as "07"; all when None.

    Raises:
        ValueError: an unknown verdict, or a lesson that judges no claim.
    """
    if verdict not in (None, *VERDICTS):
        raise ValueError(f"got verdict {verdict!r}; expected one of {listed(VERDICTS)}, or None for all.")
    known = sorted({_number(statement) for statement in all_statements()} - {NO_LESSON})
    if lesson not in (None, *known):
        raise ValueError(f"got lesson {lesson!r}; expected one of {listed(known)}, or None for all.")
    chosen = [s for s in all_statements() if verdict in (None, verdict_of(s)) and lesson in (None, _number(s))]
    lines = [line for statement in chosen for line in _lines(statement)]
    return "\n".join([*lines, f"{len(chosen)} of {len(all_statements())} claims"])


def _lines(statement: Statement) -> list[str]:
    """Return two lines: the statement; and its verdict with our value, or the reason why there is none."""
    found = judged(statement.claim).ours if statement.claim else statement.why_not
    said = f"{_number(statement)}  {statement.id}: {statement.says}", f"      {verdict_of(statement)}: {found}"
    return [text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…" for text in said]


def _number(statement: Statement) -> str:
    return lesson_of(all_claims()[statement.claim])[:2] if statement.claim else NO_LESSON
