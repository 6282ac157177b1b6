"""Write grades as tables: grades.csv for people, and files that Canvas and Moodle import.

grades.csv begins with a byte order mark, because Excel takes a file without one for its own old encoding and garbles
every name that is not English. The files for Canvas and Moodle have none, because programs read them as UTF-8.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from course_lib.checking.judge import counted, uncounted
from course_lib.grading.export.csv_safe import MARK, cell, written
from course_lib.grading.records import ExerciseResult, Result
from course_lib.grading.report.feedback_row import NOT_YET, STATES
from course_lib.grading.report.text import NAME, clean, number, points_of

COLUMNS = ("student", "lesson", "exercise", "title", "points", "of", "state", "cases_right", "cases")
COLUMNS += ("mistake", "reason", "seconds")
FEEDBACK = 4000  # characters of feedback in one cell of Moodle's table

# The number at the end of an id: jsmith_1031 as Canvas exports it, Jo Smith_4711 as Moodle does, or the number alone.
_NUMBERED = re.compile(r"(?:.*_|Participant )?([0-9]{1,18})")
# Canvas uses columns with these titles itself and does not import them.
_CANVAS_OWN = re.compile(r"(Current|Final|Override) (Score|Points|Grade|Status)")

CanvasId = Literal["ID", "SIS User ID", "SIS Login ID"]
MoodleId = Literal["Identifier", "Email address", "ID number", "Username"]


class Table(NamedTuple):
    """A table for a course system, and the students who are left out of it, each with the reason."""

    text: str
    left_out: tuple[str, ...]


def rows(results: Iterable[Result]) -> list[dict[str, str]]:
    """Return the rows of grades.csv: one per student and exercise, and one with the total.

    If the grader failed, the total is empty, like the grade in the tables for course systems.
    """
    return [row for result in results for row in _rows(result)]


def _rows(result: Result) -> list[dict[str, str]]:
    who = (cell(result.student, NAME), cell(result.lesson, NAME))
    lines, right, cases = [], 0, 0
    for row in result.exercises:
        n_right = sum(case.difference is None for case in row.cases)
        right, cases = right + n_right, cases + len(row.cases)
        named = (cell(row.exercise, NAME), cell(row.title, NAME), number(row.points), number(row.of), row.state)
        details = (cell(row.mistake, NAME), cell(_reason(row)), number(row.seconds))
        lines.append((*who, *named, str(n_right), str(len(row.cases)), *details))
    points = "" if result.grader_failed else number(result.points)
    whole = ("total", "", points, number(result.of), "", str(right), str(cases), "")
    seconds = number(sum(row.seconds for row in result.exercises))
    lines.append((*who, *whole, cell(result.problem), seconds))
    return [dict(zip(COLUMNS, row, strict=True)) for row in lines]


def _reason(row: ExerciseResult) -> str:
    """Explain what is wrong, and why some correct cases do not count."""
    n_right = sum(case.difference is None for case in row.cases)
    parts = [row.reason, counted(n_right, len(row.cases), row.lowered)]
    return "; ".join(part.rstrip(".") for part in parts if part) if row.lowered else row.reason


def grades_csv(results: Iterable[Result]) -> str:
    """Return grades.csv, to be encoded as UTF-8."""
    return MARK + written(COLUMNS, [list(row.values()) for row in rows(results)])


def canvas_csv(results: Sequence[Result], assignment: str, known_by: CanvasId = "ID") -> Table:
    """Return a table for Canvas: Grades, Import. The first lines and columns are those of Canvas's own export.

    A submission that could not be graded gets an empty cell, which changes nothing in Canvas. The assignment should be
    worth as many points there as the lesson has.

    Args:
        assignment: its title and number as in the export, such as "Lesson 04 (1234)". Without the number Canvas looks
            for the title, and offers to make a new assignment when there is none.
        known_by: what our student ids are in Canvas. Files exported from Canvas carry its own "ID", a number.

    Raises:
        ValueError: if Canvas uses a column with this title itself.
    """
    if _CANVAS_OWN.search(assignment) or not assignment.strip():
        raise ValueError(
            f"got the assignment {clean(assignment, NAME)!r}; expected the heading of its column in Canvas's export, "
            'such as "Lesson 04 (1234)", without words such as "Final Score", by which Canvas knows columns of its own.'
        )
    known, left_out = _known(results, known_by == "ID")
    most = max((result.of for result in results), default=0.0)
    columns = get_args(CanvasId)
    lines = [["Points Possible", "", "", "", "", number(most)]]  # Canvas requires a section column, and never reads it
    for student, result in known.items():
        name = cell(result.student, NAME).replace("Points Possible", "-")  # which would make it the line above
        given = [student if column == known_by else "" for column in columns]
        lines.append([name, *given, "", _grade(result)])
    return Table(written(["Student", *columns, "Section", cell(assignment, NAME)], lines), left_out)


def moodle_csv(results: Sequence[Result], item: str, known_by: MoodleId = "Email address") -> Table:
    """Return a table for Moodle: Grades, Import, CSV file; with "Identifier", an assignment's grading worksheet.

    Both have a column of feedback. The worksheet takes it where the assignment has feedback comments and offline
    grading; it knows students by the number in the names of exported folders. With its "update records that have been
    modified" ticked, earlier grades are replaced. A submission that could not be graded gets no grade.

    Args:
        item: the name of the grade in the gradebook. The worksheet has fixed names.
    """
    numbered = known_by == "Identifier"
    known, left_out = _known(results, numbered)
    graded = [(student, _grade(result), _feedback(result)) for student, result in known.items()]
    if not numbered:
        heads = [known_by, cell(item, NAME), cell(f"Feedback: {item}", NAME)]
        return Table(written(heads, graded), left_out)
    lines = [(f"Participant {student}", grade, "", feedback) for student, grade, feedback in graded]
    return Table(written(["Identifier", "Grade", "Last modified (grade)", "Feedback comments"], lines), left_out)


def _known(results: Sequence[Result], numbered: bool) -> tuple[dict[str, Result], tuple[str, ...]]:
    """Return the results by the key of the course system: the id, or the number at its end.

    A student who could be mistaken for another one is left out: Canvas would read 12abc as 12, and Moodle
    gives the grade of a row whose id is empty or 0 to the student of the row before.
    """
    given = [_id(cell(result.student, NAME), numbered) for result in results]
    counts = Counter(given)
    known = {student: result for student, result in zip(given, results, strict=True) if counts[student] == 1}
    for nobody in ("", "0"):
        known.pop(nobody, None)
    left_out = []
    for student, result in zip(given, results, strict=True):
        name = repr(cell(result.student, NAME))
        if counts[student] > 1 and student not in ("", "0"):
            left_out.append(f"{name}: {counts[student]} submissions have the id {student}; enter these grades by hand.")
        elif student not in known:
            expected = "a number at its end, as in the names of the files that the course system exports"
            left_out.append(f"{name}: got no id, expected {expected if numbered else 'one other than 0'}.")
    return known, tuple(left_out)


def _id(student: str, numbered: bool) -> str:
    """Return the id as the course system reads it, or "" if it would find none. Programs read 012 as 12."""
    ending = _NUMBERED.fullmatch(student)
    if not numbered:
        return student
    return str(int(ending[1])) if ending else ""


def _grade(result: Result) -> str:
    return "" if result.problem else number(result.points)


def _feedback(result: Result) -> str:
    """Return the grader's own text on the result, for a column that is shown as HTML."""
    if result.grader_failed:
        return NOT_YET
    if result.problem:
        return html.escape(cell(f"Nothing could be graded: {result.problem}"), quote=False)
    sentences = [f"{points_of(result.points, result.of)}."]
    for row in result.exercises:
        looks = f", looks like: {row.mistake}" if row.mistake else ""
        why = f" ({uncounted(row.lowered)})" if row.lowered else ""
        sentences.append(
            f"{row.title}: {STATES[row.state][1].lower()}, {number(row.points)} of {number(row.of)}{why}{looks}."
        )
    return html.escape(cell(" ".join(sentences), FEEDBACK), quote=False)
