"""The instructor's page, what it says of single submissions: problems, time, and the list of all."""

from collections import Counter
from collections.abc import Sequence

from course_lib.grading.records import Result
from course_lib.grading.report import tally
from course_lib.grading.report.by_exercise import MARKS, link
from course_lib.grading.report.html import NAME, counted, duration, escape, number, sentence
from course_lib.grading.report.tables import Cell, Column, table
from course_lib.grading.report.tally import Facts

MOST_ROWS = 300  # of a list; grades.csv has all problems
SLOWEST = 10


def problems(results: Sequence[Result]) -> str:
    """What could not be graded, what gave nothing to grade, and, folded away, single exercises that did not run."""
    lost = [(result, "not graded", result.problem) for result in results if result.problem]
    silent = [(result, "nothing ran", _common_reason(result)) for result in results if tally.nothing_ran(result)]
    single = [
        (result, row.title, row.reason)
        for result in results
        if not (result.problem or tally.nothing_ran(result))
        for row in result.exercises
        if tally.group_of(row) == "did not run"
    ]
    if not (lost or silent or single):
        return '<p class="note">Every submission was read, and every function ran.</p>'
    ended = counted(len(single), "single exercise")
    parts = [f"{counted(len(lost), 'submission')} could not be graded"] * bool(lost)
    parts += [f"in {counted(len(silent), 'submission')} nothing ran"] * bool(silent)
    parts += [f"{ended} did not run"] * bool(single)
    finding = "; ".join(parts)
    summary = f'<p class="finding">{finding[0].upper()}{finding[1:]}</p>'
    rest = _problems(single, Column("Exercise"), "Single exercises that did not run")
    folded = f"<details><summary>{ended} that did not run</summary>{rest}</details>" if single else ""
    return f"{summary}{_problems([*lost, *silent], Column('What', 'tag'), 'Problems')}{folded}"


def _problems(entries: list[tuple[Result, str, str]], what: Column, title: str) -> str:
    columns = (Column("Student", "name"), what, Column("Why"), Column("Where it came from"))
    rows = [
        [Cell(link(result.student)), Cell(escape(name, NAME)), Cell(sentence(reason)), Cell(_path(result.origin))]
        for result, name, reason in entries[:MOST_ROWS]
    ]
    shown = table(title, columns, rows, "Every submission was read, and in each something ran.")
    return f"{shown}{more(len(entries), 'grades.csv has them all')}"


def _path(origin: str) -> str:
    return escape(origin, 200).replace("/", "/<wbr>")


def _common_reason(result: Result) -> str:
    reasons = Counter(row.reason for row in result.exercises)
    return reasons.most_common(1)[0][0] if reasons else "The submission has no exercises."


def more(n: int, where: str = "") -> str:
    left = n - MOST_ROWS
    return f'<p class="note">{left:,} more are not shown{"; " * bool(where)}{where}.</p>' if left > 0 else ""


def time(results: Sequence[Result], facts: Facts) -> str:
    """Where the time went."""
    graded = sorted(tally.graded(results), key=tally.seconds_of, reverse=True)
    if not graded:
        return '<p class="note">Nothing was run.</p>'
    middle = tally.middle([tally.seconds_of(result) for result in graded])
    ran = f"half of the submissions ran for {duration(middle)} or less, the slowest for {_ran(graded[0])}"
    ran = ran if len(graded) > 1 else f"the functions ran for {_ran(graded[0])}"
    took = f"Grading {counted(facts.n_graded, 'submission')} took {duration(facts.seconds)}"
    summary = f'<p class="finding">{took}; {ran}</p>'
    columns = (Column("Exercise", "name"), Column("Half take at most", "number"), Column("The slowest", "number"))
    rows = [
        [Cell(escape(row.title, NAME)), *(Cell(duration(seconds), seconds) for seconds in row.seconds)]
        for row in sorted(tally.exercises(results), key=lambda row: -row.seconds[1])
    ]
    slowest = [[Cell(link(result.student)), _seconds(result)] for result in graded[:SLOWEST]]
    people = (Column("Slowest submissions", "name"), Column("Ran", "number"))
    return (
        f'{summary}<div class="two">{table("Slowest exercises", columns, rows, "")}'
        f"{table('Slowest submissions', people, slowest, '')}</div>"
    )


def _ran(result: Result) -> str:
    return duration(tally.seconds_of(result))


def _seconds(result: Result) -> Cell:
    return Cell(_ran(result), tally.seconds_of(result))


def students(results: Sequence[Result]) -> str:
    """All of the class, one row each."""
    columns = (
        Column("Student", "name"),
        Column("Exercises", "marks"),
        Column("Points", "number"),
        Column("Ran", "number"),
    )
    rows = [
        [
            Cell(link(result.student)),
            Cell("not graded" if result.problem else _marks(result), _n_right(result)),
            Cell(f"{number(result.points)} of {number(result.of)}", result.points),
            _seconds(result),
        ]
        for result in sorted(results, key=lambda result: result.student.casefold())
    ]
    key = "".join(f'<li><i class="mark {MARKS[group]}"></i>{group}</li>' for group in tally.GROUPS)
    markup = table("All students", columns, rows, "There are no submissions.")
    return f'<ul class="legend">{key}</ul>{markup}' if rows else markup


def _n_right(result: Result) -> int:
    return sum(row.state == "right" for row in result.exercises)


def _marks(result: Result) -> str:
    """One mark an exercise, in the order of the exercises."""
    groups = [tally.group_of(row) for row in result.exercises]
    counts = ", ".join(f"{n} {group}" for group, n in Counter(groups).items())
    marks = "".join(f'<i class="mark {MARKS[group]}"></i>' for group in groups)
    return f'<span class="strip" role="img" aria-label="{counts}">{marks}</span>'
