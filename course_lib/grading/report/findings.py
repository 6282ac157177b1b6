"""Write the sentences of the instructor's page, above each table and chart."""

from collections.abc import Sequence

from course_lib.grading.records import Result
from course_lib.grading.report import tally
from course_lib.grading.report.tally import ExerciseTally, Facts, MistakeTally
from course_lib.grading.report.text import counted, duration, name, points_of, whole_percent


def lead(results: Sequence[Result], rows: Sequence[ExerciseTally], named: Sequence[MistakeTally]) -> str:
    """Return the sentence that an instructor should read first."""
    if not rows:
        return "Nothing was graded." if results else "There are no submissions."
    lost = max(rows, key=lambda row: row.of - row.points)
    if lost.points >= lost.of:
        return "Every exercise of every graded submission is right."
    earned = points_of(lost.points, lost.of)
    sentence = f"Most points are lost in {_quoted(lost.title)}, where the average is {earned}."
    if named:
        count = counted(len(named[0].students), "submission makes it", "submissions make it")
        common = f"{_quoted(named[0].name)} in {_quoted(named[0].title)}"
        sentence += f" The most common mistake with a name is {common}: {count}."
    return sentence


def points(totals: Sequence[float], of: float) -> str:
    """Describe the distribution of the points."""
    if len(totals) == 1:
        return f"The one graded submission has {points_of(totals[0], of)}"
    full, nothing = sum(total >= of for total in totals), sum(total == 0 for total in totals)
    extremes = [f"{full:,} have all"] * bool(full) + [f"{nothing:,} have none"] * bool(nothing)
    finding = f"Half of the class has at least {points_of(tally.middle(totals), of)}"
    return "; ".join([finding, ", ".join(extremes)]) if extremes else finding


def exercises(rows: Sequence[ExerciseTally]) -> str:
    """Name the hardest and the easiest exercise."""
    if not rows:
        return ""
    hardest, easiest = min(rows, key=_right), max(rows, key=_right)
    if _right(hardest) == _right(easiest):
        return f"Every exercise is right in {whole_percent(_right(hardest))} of the submissions"
    return (
        f"{_quoted(hardest.title)} is the hardest, right in {whole_percent(_right(hardest))} of the submissions; "
        f"{_quoted(easiest.title)} the easiest, right in {whole_percent(_right(easiest))}"
    )


def _right(row: ExerciseTally) -> float:
    return row.share("right")


def mistakes(rows: Sequence[MistakeTally], graded: Sequence[Result]) -> str:
    """Name the most common mistake, and say how many of the wrong answers match a named mistake."""
    if not rows:
        return ""
    wrong = [row for result in graded for row in result.exercises if tally.group_of(row) in ("partly right", "wrong")]
    finding = f"{_quoted(rows[0].name)} is the most common, in {counted(len(rows[0].students), 'submission')}"
    if not wrong:
        return finding
    known = whole_percent(sum(bool(row.mistake) for row in wrong) / len(wrong))
    return f"{finding}; {known} of the {counted(len(wrong), 'wrong answer')} have a name"


def problems(results: Sequence[Result], n_single: int) -> str:
    """Count the failures: whole submissions, and `n_single` exercises of others."""
    lost, silent = sum(bool(result.problem) for result in results), sum(map(tally.nothing_ran, results))
    parts = [f"{counted(lost, 'submission')} could not be graded"] * bool(lost)
    parts += [f"in {counted(silent, 'submission')} nothing ran"] * bool(silent)
    parts += [f"{counted(n_single, 'single exercise')} did not run"] * bool(n_single)
    finding = "; ".join(parts)
    return finding[:1].upper() + finding[1:]


def time(graded: Sequence[Result], facts: Facts) -> str:
    """Say how long grading took, and how long the submissions ran."""
    seconds = [tally.seconds_of(result) for result in graded]
    if not seconds:
        return ""
    middle, most = duration(tally.middle(seconds)), duration(max(seconds))
    ran = f"half of the submissions ran for {middle} or less, the slowest for {most}"
    ran = ran if len(seconds) > 1 else f"the functions ran for {most}"
    return f"Grading {counted(facts.n_graded, 'submission')} took {duration(facts.seconds)}; {ran}"


def _quoted(title: str) -> str:
    return f"“{name(title)}”"
