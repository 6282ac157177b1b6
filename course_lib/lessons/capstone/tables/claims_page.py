"""The claims of all documents and their verdicts, from the summary that `course claims` writes.

The claims page is made above the lessons, which cannot import it; its summary is committed next to this lesson.
"""

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS

SUMMARY = Path(__file__).parents[1] / "verdicts.json"
NO_LESSON = "without a lesson"


class Judged(NamedTuple):
    """A statement of a document in our words, its verdict, and the number of the lesson that judges it."""

    id: str
    says: str
    verdict: str
    lesson: str


@lru_cache(maxsize=1)
def claims() -> tuple[Judged, ...]:
    """All of them, in the page's order."""
    rows = json.loads(SUMMARY.read_text(encoding="utf-8"))
    return tuple(Judged(row["id"], row["says"], row["verdict"], row["lesson"] or NO_LESSON) for row in rows)


def counts(lesson: str | None = None) -> dict[str, int]:
    """How many claims have each verdict, of all lessons or of one."""
    found = Counter(each.verdict for each in claims() if lesson in (None, each.lesson))
    return {verdict: found[verdict] for verdict in (*WORDS, NOT_MEASURED)}
