"""Write one page for each student: points, errors, and next steps."""

from course_lib.grading.records import Result
from course_lib.grading.report import feedback_row
from course_lib.grading.report.feedback_row import STATES
from course_lib.grading.report.templates import render
from course_lib.grading.report.text import counted, name, number

MOST_EXERCISES, MOST_CASES, MOST_NOTES = 60, 60, 12


def html(result: Result) -> str:
    """Return a student's page as a complete file."""
    return render(
        "feedback.html",
        result=result,
        rows=result.exercises[:MOST_EXERCISES],
        summary=_summary(result),
        alike=_all_alike(result),
        states=STATES,
        what_happened=feedback_row.happened,
        lowered=feedback_row.lowered,
        advice=feedback_row.next_step,
        trace=feedback_row.trace,
        most_cases=MOST_CASES,
        most_notes=MOST_NOTES,
    )


def _all_alike(result: Result) -> bool:
    """Check whether all exercises failed for the same reason, which is then given once."""
    return (
        len(result.exercises) > 1
        and len({(row.state, row.reason) for row in result.exercises}) == 1
        and (STATES[result.exercises[0].state][0] == "failed" and not any(row.cases for row in result.exercises))
    )


def _summary(result: Result) -> str:
    """Summarise the result in a sentence or two, with the largest possible gain."""
    if result.grader_failed:
        return feedback_row.NOT_YET
    if result.problem or not result.exercises:
        return "No exercise was graded."
    n_right = sum(row.state == "right" for row in result.exercises)
    if n_right == len(result.exercises):
        return f"All {n_right} exercises are right." if n_right > 1 else "The exercise is right."
    of, are = counted(len(result.exercises), "exercise"), "is" if n_right < 2 else "are"
    opening = f"{n_right or 'None'} of {of} {are} right."
    most = max(result.exercises, key=lambda row: (row.of - row.points, bool(row.mistake)))
    gain = number(most.of - most.points)
    return f"{opening} Most is to be gained in “{name(most.title)}”: {gain} point{'s' * (gain != '1')}."
