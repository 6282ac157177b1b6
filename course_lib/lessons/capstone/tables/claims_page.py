"""The claims of all documents and what became of them, read from the page that `course claims` writes.

The ledger itself stands above the lessons, which cannot ask it; its page is committed, and compared with it by a test.
"""

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS

PAGE = Path(__file__).parents[4] / "docs" / "claims.md"
ROW = re.compile(r"^\| ([a-z-]+-\d+) \| (.+)$", re.MULTILINE)
CELL = re.compile(r"(?<!\\) \| ")
BESIDE = "without a lesson"


class Judged(NamedTuple):
    """A row of the page: the claim in our words, one of five verdicts or that it is not measured, the lesson."""

    id: str
    says: str
    verdict: str
    effect: str
    lesson: str  # its number


@lru_cache(maxsize=1)
def claims() -> tuple[Judged, ...]:
    """All of them, in the page's order."""
    found = []
    for row in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        says, words, effect, *_, decided = CELL.split(row[2].removesuffix(" |"))
        verdict = next(word for word in (*WORDS[::-1], NOT_MEASURED) if words.startswith(word))
        lesson = re.match(r"lesson (\d\d)", decided)
        found.append(Judged(row[1], says, verdict, effect, lesson[1] if lesson else BESIDE))
    return tuple(found)


def counts(lesson: str | None = None) -> dict[str, int]:
    """How many claims came out how, of all lessons or of one."""
    found = Counter(each.verdict for each in claims() if lesson in (None, each.lesson))
    return {verdict: found[verdict] for verdict in (*WORDS, NOT_MEASURED)}
