"""One page for each student: what was earned, what went wrong where, and what to do next."""

from course_lib.grading.records import ExerciseResult, Result
from course_lib.grading.report import charts
from course_lib.grading.report.feedback_row import STATES, box, happened, next_step, notes, section, trace
from course_lib.grading.report.html import NAME, clean, counted, escape, frame, number, points_of, sentence, styles

MOST_EXERCISES = 60

FOOT = """<footer><p>Every case of an exercise counts the same; where only such cases are right as one gets without the
idea, none does, and an answer that is altogether a named mistake earns a third at most. The numbers in the cases were
drawn for you. Cases marked
“hidden” are not in the notebook: they look at what its cases leave open. Prints, warnings and hints cost no points.</p>
<p>If you think that a grade is wrong, name the exercise and the case when you ask.</p></footer>"""


def html(result: Result) -> str:
    """A student's page, complete in itself."""
    rows = result.exercises[:MOST_EXERCISES]
    who = f"<h1><bdi>{escape(result.student, NAME)}</bdi></h1>"
    head = f'<header><p class="kicker">{escape(result.lesson, NAME)}</p>{who}{_total(result)}</header>'
    if result.problem:
        message = box("happened", "Nothing could be graded", f"<p>{sentence(result.problem)}</p>")
        body = f"{head}<main>{message}{notes(result.notes)}</main>"
    elif _all_alike(result):
        message = happened(rows[0]) + next_step(rows[0]) + trace(rows[0])
        body = f"{head}<main>{notes(result.notes)}{message}</main>{_contents(rows, '{}')}{FOOT}"
    else:
        sections = "\n".join(section(row, index) for index, row in enumerate(rows))
        contents = _contents(rows, '<a href="#e{1}">{0}</a>')
        body = f"{head}{contents}<main>{notes(result.notes)}\n{sections}</main>{FOOT}"
    return frame(f"{result.lesson}: {result.student}", charts.MARKS + body, styles("page", "feedback"))


def _all_alike(result: Result) -> bool:
    """Whether all exercises failed for one and the same reason, which is then said once."""
    return (
        len(result.exercises) > 1
        and len({(row.state, row.reason) for row in result.exercises}) == 1
        and (STATES[result.exercises[0].state][0] == "failed" and not any(row.cases for row in result.exercises))
    )


def _total(result: Result) -> str:
    bar = charts.progress([(row.points, row.of) for row in result.exercises[:MOST_EXERCISES]], _summary(result))
    points = points_of(result.points, result.of).partition(" ")
    shown = f'<p class="total"><b>{points[0]}</b> <span>{points[2]}</span></p>'
    return f'{shown}{bar}<p class="lead">{escape(_summary(result))}</p>'


def _summary(result: Result) -> str:
    """The whole result in a sentence or two, and where most is to be gained."""
    if result.problem or not result.exercises:
        return "No exercise was graded."
    n_right = sum(row.state == "right" for row in result.exercises)
    if n_right == len(result.exercises):
        return f"All {n_right} exercises are right." if n_right > 1 else "The exercise is right."
    of, are = counted(len(result.exercises), "exercise"), "is" if n_right < 2 else "are"
    opening = f"{n_right or 'None'} of {of} {are} right."
    most = max(result.exercises, key=lambda row: (row.of - row.points, bool(row.mistake)))
    gain = number(most.of - most.points)
    return f"{opening} Most is to be gained in “{clean(most.title, NAME)}”: {gain} point{'s' * (gain != '1')}."


def _contents(rows: tuple[ExerciseResult, ...], link: str) -> str:
    """The list of the exercises. `link` is what becomes of a title and its number."""
    items = "".join(
        f"<li>{charts.mark(STATES[row.state][0])}"
        f"{link.format(f'<span>{escape(row.title, NAME)}</span>', index)}"
        f'<span class="state {STATES[row.state][0]}">{STATES[row.state][1]}</span>'
        f'<span class="points">{number(row.points)} of {number(row.of)}</span></li>'
        for index, row in enumerate(rows)
    )
    return f'<nav aria-label="Exercises"><ol>{items}</ol></nav>'
