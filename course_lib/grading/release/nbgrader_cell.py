"""The `check` of a graded cell in nbgrader: it returns points, while the students' own `check` only shows its result.

nbgrader gives no points for an error or any output on stderr, so we discard stderr; a number gives that many points.
Student code runs in the same process as this check and could fake its result; `course grade` separates the two.
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator

from course_lib.checking.judge import Verdict, judge, uncounted
from course_lib.workbook import show
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import SEED, CheckFailed
from course_lib.workbook.progress import Record


def check(exercise_id: str, function: Callable) -> float:
    """Return the points for a function: the fraction of `check`'s cases that it passes, by the rules of `course grade`.

    Raises:
        CheckFailed: if no case is correct, or none that counts.
    """
    with silent():
        verdict = judge(find(exercise_id), function, SEED)
        show.verdict(verdict, Record())
    points = points_for(verdict)
    if not points:
        raise CheckFailed(f"{exercise_id} is {verdict.state}: {uncounted(verdict.lowered) or verdict.difference}")
    return points


def points_for(verdict: Verdict) -> float:
    return round(verdict.exercise.points * verdict.share, 2)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep warnings and other text on stderr, also from C++, out of the cell."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, warnings.catch_warnings(action="ignore"):
            os.dup2(nowhere.fileno(), 2)
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
