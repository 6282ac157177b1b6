"""The instructor's page: how the class did, what to say in the next lecture, and what needs a human's eye."""

from collections.abc import Sequence

from course_lib.grading.records import Result
from course_lib.grading.report import by_exercise, by_student, charts, signals, tally
from course_lib.grading.report.html import NAME, counted, escape, frame, number, points_of, styles
from course_lib.grading.report.tables import SORT
from course_lib.grading.report.tally import Facts

SECTIONS = (
    ("points", "Points"),
    ("exercises", "Exercises"),
    ("mistakes", "Mistakes with a name"),
    ("problems", "Problems"),
    ("signals", "Fairness signals"),
    ("time", "Time"),
    ("students", "Students"),
)


def html(results: Sequence[Result], facts: Facts) -> str:
    """The whole page. Links to the students' pages expect them in feedback/ beside it."""
    contents = {
        "points": _points(results),
        "exercises": by_exercise.exercises(results),
        "mistakes": by_exercise.mistakes(results),
        "problems": by_student.problems(results),
        "signals": signals.signals(results),
        "time": by_student.time(results, facts),
        "students": by_student.students(results),
    }
    sections = "\n".join(
        f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{title}</h2>\n{contents[key]}</section>'
        for key, title in SECTIONS
    )
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title in SECTIONS)
    body = (
        f"{charts.PATTERNS}<header>{_head(results, facts)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main>\n{sections}\n</main>\n{_foot(facts)}'
    )
    return frame(f"{facts.lesson}: the class", body, styles("page", "report"), SORT)


def _head(results: Sequence[Result], facts: Facts) -> str:
    graded = tally.graded(results)
    earned, of = sum(result.points for result in graded), sum(result.of for result in graded)
    middle = tally.middle([result.points for result in graded])
    silent = sum(map(tally.nothing_ran, results))
    tiles = (
        ("Submissions", f"{len(results):,}"),
        ("Graded", f"{len(graded):,}"),
        ("With problems", f"{len(results) - len(graded) + silent:,}"),
        ("Median", f"{number(middle)} <small>of {number(_most(graded))}</small>" if graded else "–"),
        ("Points earned", f"{100 * earned / of:.0f} %" if of else "–"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return (
        f'<p class="kicker">{escape(facts.lesson, NAME)}</p><h1>How the class did</h1>'
        f'<p class="lead">{_lead(results)}</p><dl class="tiles">{shown}</dl>'
    )


def _most(graded: Sequence[Result]) -> float:
    return float(max((result.of for result in graded), default=0.0))


def _lead(results: Sequence[Result]) -> str:
    """What an instructor should know first."""
    rows, mistakes = tally.exercises(results), tally.mistakes(results)
    if not rows:
        return "Nothing was graded." if results else "There are no submissions."
    lost = max(rows, key=lambda row: row.of - row.points)
    if lost.points >= lost.of:
        return "Every exercise of every graded submission is right."
    earned = points_of(lost.points, lost.of)
    lead = f"Most points are lost in “{escape(lost.title, NAME)}”, where the average is {earned}."
    if mistakes:
        name, title = escape(mistakes[0].name, NAME), escape(mistakes[0].title, NAME)
        count = counted(len(mistakes[0].students), "submission makes it", "submissions make it")
        lead += f" The most common mistake with a name is “{name}” in “{title}”: {count}."
    return lead


def _points(results: Sequence[Result]) -> str:
    graded = tally.graded(results)
    if not graded:
        return '<p class="note">No submission was graded.</p>'
    totals, of = [result.points for result in graded], _most(graded)
    left = len(results) - len(graded)
    note = f'<p class="note">Not shown: {counted(left, "submission")} without a grade.</p>' if left else ""
    chart = charts.histogram(totals, of, tally.middle(totals))
    return f"<figure><figcaption>{_finding(totals, of)}</figcaption>{chart}</figure>{note}"


def _finding(totals: list[float | int], of: float) -> str:
    if len(totals) == 1:
        return f"The one graded submission has {points_of(totals[0], of)}"
    full, nothing = sum(total >= of for total in totals), sum(total == 0 for total in totals)
    extremes = [f"{full:,} have all"] * bool(full) + [f"{nothing:,} have none"] * bool(nothing)
    finding = f"Half of the class has at least {points_of(tally.middle(totals), of)}"
    return "; ".join([finding, ", ".join(extremes)]) if extremes else finding


def _foot(facts: Facts) -> str:
    """What one needs to do this again."""
    known = {"started": facts.started, "seed": str(facts.seed), "sandbox": facts.sandbox, **facts.versions}
    details = " · ".join(f"{escape(name, NAME)} {escape(value, NAME)}" for name, value in known.items())
    return f"<footer><p>{details}</p></footer>"
