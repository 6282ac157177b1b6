"""Write the instructor's page: the results of the class, topics for the next lecture, and cases that need a human."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.grading.records import Result
from course_lib.grading.report import charts, findings, similar_code, tally
from course_lib.grading.report.similar_code import LONG_ENOUGH
from course_lib.grading.report.tally import Facts
from course_lib.grading.report.templates import render

MOST_NAMES, MOST_ROWS = 200, 300  # entries of a list; grades.csv has them all
MOST_MISTAKES = 12  # entries that are visible at first; rarer ones are folded
SLOWEST = 10


class Problem(NamedTuple):
    """A problem of a submission, and its reason."""

    result: Result
    what: str
    why: str


def html(results: Sequence[Result], facts: Facts) -> str:
    """Return the whole page. Its links expect the students' pages in feedback/ next to it."""
    graded, exercises, mistakes = tally.graded(results), tally.exercises(results), tally.mistakes(results)
    totals, of = [result.points for result in graded], sum(result.of for result in graded)
    most = float(max((result.of for result in graded), default=0.0))
    problems, single = _problems(results), _single_problems(results)
    pieces = similar_code.shared(results)
    return render(
        "report.html",
        facts=facts,
        results=results,
        graded=graded,
        exercises=exercises,
        mistakes=mistakes,
        problems=problems,
        single=single,
        share=sum(totals) / of if of else None,
        median=tally.middle(totals),
        most=most,
        chart=charts.histogram(totals, most) if graded else None,
        say={
            "lead": findings.lead(results, exercises, mistakes),
            "points": findings.points(totals, most),
            "exercises": findings.exercises(exercises),
            "mistakes": findings.mistakes(mistakes, graded),
            "problems": findings.problems(results, len(single)),
            "time": findings.time(graded, facts),
        },
        pieces=pieces,
        telling=[piece for piece in pieces if piece.telling],
        pairs=[pair for pair in similar_code.pairs(pieces) if len(pair.exercises) > 1],
        touched=similar_code.touched(results),
        only_calls=similar_code.only_calls(results),
        long_enough=LONG_ENOUGH,
        slow_exercises=sorted(exercises, key=lambda row: -row.seconds[1]),
        slow_results=sorted(graded, key=tally.seconds_of, reverse=True)[:SLOWEST],
        by_name=sorted(results, key=lambda result: result.student.casefold()),
        group_of=tally.group_of,
        seconds_of=tally.seconds_of,
        marks_in_words=_marks_in_words,
        known={"started": facts.started, "seed": str(facts.seed), "sandbox": facts.sandbox, **facts.versions},
        most_names=MOST_NAMES,
        most_rows=MOST_ROWS,
        most_mistakes=MOST_MISTAKES,
    )


def _problems(results: Sequence[Result]) -> list[Problem]:
    """List submissions that could not be graded, then those in which nothing ran."""
    lost = [Problem(result, "not graded", result.problem) for result in results if result.problem]
    silent = [
        Problem(result, "nothing ran", tally.common_reason(result)) for result in results if tally.nothing_ran(result)
    ]
    return lost + silent


def _single_problems(results: Sequence[Result]) -> list[Problem]:
    """List exercises that did not run, from submissions in which others did."""
    return [
        Problem(result, row.title, row.reason)
        for result in results
        if not (result.problem or tally.nothing_ran(result))
        for row in result.exercises
        if tally.group_of(row) == "did not run"
    ]


def _marks_in_words(result: Result) -> str:
    groups = Counter(tally.group_of(row) for row in result.exercises)
    return ", ".join(f"{n} {group}" for group, n in groups.items())
