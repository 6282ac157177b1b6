"""The instructor's page, what it says of the class: how each exercise went, and which mistakes have a name."""

from collections.abc import Sequence
from urllib.parse import quote

from course_lib.grading.intake.student_ids import file_name
from course_lib.grading.records import Result
from course_lib.grading.report import charts, tally
from course_lib.grading.report.html import NAME, counted, escape, number
from course_lib.grading.report.tables import Cell, Column, table
from course_lib.grading.report.tally import GROUPS, ExerciseTally, MistakeTally

MARKS = dict(zip(GROUPS, ("right", "partly", "wrong", "failed", "none"), strict=True))
MOST_NAMES = 200  # in one list; grades.csv has them all
MOST_SHOWN = 12  # mistakes that are seen at once; rarer ones are folded away


def link(student: str) -> str:
    """A student's name, linked to the student's page."""
    return f'<a href="feedback/{quote(file_name(student))}.html"><bdi>{escape(student, NAME)}</bdi></a>'


def names(students: Sequence[str]) -> str:
    """Students in a list of bounded length."""
    left = len(students) - MOST_NAMES
    return ", ".join(map(link, students[:MOST_NAMES])) + (f" and {left:,} more" if left > 0 else "")


def percent(share: float) -> str:
    """A share in whole percent, never 0 or 100 where it is not quite."""
    rounded = min(max(round(100 * share), int(share > 0)), 99 if share < 1 else 100)
    return f"{rounded} %"


def exercises(results: Sequence[Result]) -> str:
    """One bar an exercise, and the shares as numbers."""
    rows = tally.exercises(results)
    columns = (
        Column("Exercise", "name"),
        Column("All graded submissions", "chart"),
        *(Column(group.capitalize(), "number") for group in GROUPS),
        Column("Points on average", "number"),
    )
    markup = table("How each exercise went", columns, [_exercise(row) for row in rows], "No exercise was graded.")
    if not rows:
        return markup
    key = charts.legend([(MARKS[group], group) for group in GROUPS])
    return f"<figure><figcaption>{_finding(rows)}</figcaption>{key}{markup}</figure>"


def _finding(rows: list[ExerciseTally]) -> str:
    hardest, easiest = min(rows, key=_right), max(rows, key=_right)
    if _right(hardest) == _right(easiest):
        return f"Every exercise is right in {percent(_right(hardest))} of the submissions"
    return (
        f"“{escape(hardest.title, NAME)}” is the hardest, right in {percent(_right(hardest))} of the submissions; "
        f"“{escape(easiest.title, NAME)}” the easiest, right in {percent(_right(easiest))}"
    )


def _right(row: ExerciseTally) -> float:
    return row.share("right")


def _exercise(row: ExerciseTally) -> list[Cell]:
    bar = charts.stacked([(MARKS[group], row.groups[group]) for group in GROUPS])
    shares = [
        Cell(f"{percent(row.share(group))} <span class='who'>({row.groups[group]:,})</span>", row.share(group))
        for group in GROUPS
    ]
    points = Cell(f"{number(row.points)} of {number(row.of)}", row.points / row.of if row.of else 0.0)
    return [Cell(escape(row.title, NAME)), Cell(bar), *shares, points]


def mistakes(results: Sequence[Result]) -> str:
    """What to say in the next lecture: each named mistake with its explanation, the most common first."""
    rows = tally.mistakes(results)
    columns = (
        Column("Mistake", "name"),
        Column("Exercise"),
        Column("Submissions", "number"),
        Column("", "short chart"),
        Column("What to say about it"),
    )
    most = max((len(row.students) for row in rows), default=0)
    empty = "No wrong answer was recognised as a mistake with a name."
    cells = [_mistake(row, most) for row in rows]
    common = table("Mistakes with a name", columns, cells[:MOST_SHOWN], empty)
    if not rows:
        return common
    rest = table("Rarer mistakes", columns, cells[MOST_SHOWN:], "")
    rarer = counted(len(rows) - MOST_SHOWN, "rarer mistake")
    more = f"<details><summary>{rarer}</summary>{rest}</details>" if len(rows) > MOST_SHOWN else ""
    return f"<figure><figcaption>{_named(results, rows)}</figcaption>{common}{more}</figure>"


def _named(results: Sequence[Result], rows: list[MistakeTally]) -> str:
    wrong = [
        row
        for result in tally.graded(results)
        for row in result.exercises
        if tally.group_of(row) in ("partly right", "wrong")
    ]
    known = sum(bool(row.mistake) for row in wrong)
    top = rows[0]
    finding = f"“{escape(top.name, NAME)}” is the most common, in {counted(len(top.students), 'submission')}"
    if not wrong:
        return finding
    return f"{finding}; {percent(known / len(wrong))} of the {counted(len(wrong), 'wrong answer')} have a name"


def _mistake(row: MistakeTally, most: int) -> list[Cell]:
    n = len(row.students)
    who = f"<details class='who'><summary>who</summary>{names(row.students)}</details>"
    return [
        Cell(escape(row.name, NAME)),
        Cell(escape(row.title, NAME)),
        Cell(f"{n:,}", n),
        Cell(charts.length(n, most)),
        Cell(f"{escape(row.explanation)}{who}"),
    ]
