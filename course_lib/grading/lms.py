"""Grades as tables: grades.csv for people, and what Canvas and Moodle import.

grades.csv begins with a byte order mark, because Excel takes a file without one for its own old encoding and garbles
every name that is not English. The files for Canvas and Moodle carry none: they are read by programs, as UTF-8.
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from course_lib.grading.feedback_row import STATES
from course_lib.grading.page import NAME, clean, number, points_of
from course_lib.grading.records import Result
from course_lib.grading.sheet import MARK, cell, written

COLUMNS = ("student", "lesson", "exercise", "title", "points", "of", "state", "cases_right", "cases")
COLUMNS += ("mistake", "reason", "seconds")
FEEDBACK = 4000  # characters of feedback in one cell of Moodle's table

_DIGITS = re.compile(r"[0-9]{1,18}")
# Canvas takes columns with these words for its own and does not import them.
_CANVAS_OWN = re.compile(r"(Current|Final|Override) (Score|Points|Grade|Status)")

CanvasId = Literal["ID", "SIS User ID", "SIS Login ID"]
MoodleId = Literal["Identifier", "Email address", "ID number", "Username"]


def rows(results: Iterable[Result]) -> list[dict[str, str]]:
    """The rows of grades.csv: one for each student and exercise, and one with the total."""
    return [row for result in results for row in _rows(result)]


def _rows(result: Result) -> list[dict[str, str]]:
    who = (cell(result.student, NAME), cell(result.lesson, NAME))
    made, right, cases = [], 0, 0
    for row in result.exercises:
        n_right = sum(case.difference is None for case in row.cases)
        right, cases = right + n_right, cases + len(row.cases)
        named = (cell(row.exercise, NAME), cell(row.title, NAME), number(row.points), number(row.of), row.state)
        said = (cell(row.mistake, NAME), cell(row.reason), number(row.seconds))
        made.append((*who, *named, str(n_right), str(len(row.cases)), *said))
    whole = ("total", "", number(result.points), number(result.of), "", str(right), str(cases), "")
    seconds = number(sum(row.seconds for row in result.exercises))
    made.append((*who, *whole, cell(result.problem), seconds))
    return [dict(zip(COLUMNS, row, strict=True)) for row in made]


def grades_csv(results: Iterable[Result]) -> str:
    """grades.csv, to be written as UTF-8."""
    return MARK + written(COLUMNS, [list(row.values()) for row in rows(results)])


def canvas_csv(results: Sequence[Result], assignment: str, known_by: CanvasId = "ID") -> str:
    """A table for Canvas: Grades, Import. The first lines and columns are those of Canvas's own export.

    A submission that could not be graded gets an empty cell, which changes nothing in Canvas.

    Args:
        assignment: its title and number as in the export, such as "Lesson 04 (1234)". Without the number Canvas looks
            for the title, and offers to make a new assignment when there is none.
        known_by: what our student ids are in Canvas. Files downloaded from Canvas carry its own "ID".

    Raises:
        ValueError: for a title that Canvas takes for a column of its own, and ids that it would confuse.
    """
    if _CANVAS_OWN.search(assignment) or not assignment.strip():
        raise ValueError(
            f"got the assignment {clean(assignment, NAME)!r}; expected the heading of its column in Canvas's export, "
            'such as "Lesson 04 (1234)", without words such as "Final Score", by which Canvas knows columns of its own.'
        )
    _distinct(results)
    wrong = [each.student for each in results if not _DIGITS.fullmatch(each.student)]
    if known_by == "ID" and wrong:  # Canvas would read 12abc as 12, which is somebody else
        raise ValueError(
            f"got the student {clean(wrong[0], NAME)!r}; Canvas's own ids are numbers. Choose the column of these "
            "ids: SIS User ID or SIS Login ID."
        )
    most = max((result.of for result in results), default=0.0)
    known = ("ID", "SIS User ID", "SIS Login ID")
    lines = [["Points Possible", "", "", "", "", number(most)]]
    for result in results:
        ids = [cell(result.student, NAME) if column == known_by else "" for column in known]
        name = cell(result.student, NAME).replace("Points Possible", "-")  # which would make it the line above
        lines.append([name, *ids, "", _grade(result)])  # Canvas wants the column of sections, and ignores what it says
    return written(["Student", *known, "Section", cell(assignment, NAME)], lines)


def moodle_csv(results: Sequence[Result], item: str, known_by: MoodleId = "Email address") -> str:
    """A table for Moodle: Grades, Import, CSV file; with "Identifier", an assignment's grading worksheet.

    Both have a column of feedback. The worksheet takes it where the assignment has feedback comments and offline
    grading; it knows students by the number in the names of downloaded folders. With its "update records that have been
    modified" ticked, earlier grades are replaced. A submission that could not be graded gets no grade.

    Args:
        item: what the grade is called in the gradebook. The worksheet has names of its own.

    Raises:
        ValueError: for ids that Moodle cannot tell apart, and for worksheet ids that are no numbers.
    """
    _distinct(results)
    if known_by != "Identifier":
        lines = [[cell(result.student, NAME), _grade(result), _feedback(result)] for result in results]
        return written([known_by, cell(item, NAME), cell(f"Feedback: {item}", NAME)], lines)
    lines = [[_participant(result.student), _grade(result), "", _feedback(result)] for result in results]
    return written(["Identifier", "Grade", "Last modified (grade)", "Feedback comments"], lines)


def _participant(student: str) -> str:
    digits = re.fullmatch(r"(?:Participant )?([0-9]{1,18})", student)
    if not digits:
        raise ValueError(
            f"got the student {clean(student, NAME)!r}; a grading worksheet knows participants by a number, as in the "
            "names of the folders that Moodle makes: take it from there, or use another column."
        )
    return f"Participant {digits[1]}"


def _distinct(results: Sequence[Result]) -> None:
    """Moodle gives the grade of a row without an id, or with the id 0, to the student of the row before."""
    seen: set[str] = set()
    for result in results:
        student = clean(result.student, NAME)
        if student in ("", "0") or student in seen:
            raise ValueError(f"got the student id {student!r}, empty, 0 or twice; expected an id of its own for each.")
        seen.add(student)


def _grade(result: Result) -> str:
    return "" if result.problem else number(result.points)


def _feedback(result: Result) -> str:
    """The result in the grader's own words, for a column that is shown as HTML."""
    if result.problem:
        return html.escape(cell(f"Nothing could be graded: {result.problem}"), quote=False)
    said = [f"{points_of(result.points, result.of)}."]
    for row in result.exercises:
        looks = f", looks like: {row.mistake}" if row.mistake else ""
        said.append(f"{row.title}: {STATES[row.state][1].lower()}, {number(row.points)} of {number(row.of)}{looks}.")
    return html.escape(cell(" ".join(said), FEEDBACK), quote=False)
