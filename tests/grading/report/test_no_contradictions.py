"""Pages and tables of one class never contradict each other, whatever became of a submission and its exercises."""

import csv
import io
import itertools
import re

import pytest
from page_reader import Page

from course_lib.grading.challenge.ranking import Row
from course_lib.grading.export import lms
from course_lib.grading.records import FAILED, CaseResult, ExerciseResult, Result
from course_lib.grading.report import feedback, page
from course_lib.grading.report.page import Facts

FACTS = Facts("00 Start here", 7, "2025-11-21T10:18:00+00:00", 3.0, 1, "bwrap", {"torch": "2.13.0"})
LOST = f"{FAILED}: a machine short of memory, or another program, ended the process of start.intensity."
# What a submission may be: (problem, whether the grader failed), none of it for one that is graded.
WHOLE = {
    "graded": ("", False),
    "unreadable": ("The notebook is not valid JSON.", False),
    "called like a failure": (f"{FAILED}.ipynb: it is a link, which is not followed.", False),
    "defect": (f"{FAILED}: KeyError: 'x'", True),
    "lost": (LOST, True),
}
STATES = {"right": 2.0, "partly": 1.0, "wrong": 0.0, "not attempted": 0.0, "not found": 0.0, "failed": 0.0}


def exercise(state: str, number: int) -> ExerciseResult:
    """A row as the engine writes it."""
    n_right = {"right": 2, "partly": 1}.get(state, 0)
    cases = tuple(CaseResult(f"case {at}", False, None if at < n_right else "got 1, expected 2") for at in range(2))
    ran = state in ("right", "partly", "wrong")
    reason = "" if state == "right" else "case 1: got 1, expected 2" if ran else "why"
    return ExerciseResult(
        f"start.{number}",
        f"Step {number}",
        STATES.get(state, 0.0),
        2.0,
        state,
        reason,
        cases=cases if ran else (),
    )


def results() -> list[tuple[str, Result]]:
    """Every kind of submission with every pair of states that it can have."""
    made = []
    for kind, (problem, failed) in WHOLE.items():
        pairs = itertools.combinations_with_replacement(STATES, 2)
        for states in pairs if kind in ("graded", "lost") else [("no submission",) * 2]:
            rows = tuple(exercise(state, number) for number, state in enumerate(states))
            result = Result("7", "00 Start here", "7.ipynb", 0, rows, problem=problem, grader_failed=failed)
            made.append(pytest.param(kind, result, id=f"{kind}: {' and '.join(states)}"))
    row = Row(student="7", origin="7.json", state="failed", reason="KeyError: 'x'", failed=True)
    return [*made, pytest.param("defect", row.result, id="a recipe of the challenge")]


def cells(table: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.removeprefix("\ufeff"))))


@pytest.mark.parametrize(("kind", "result"), results())
def test_all_say_the_same_of_a_submission(kind, result):
    told, of_class = Page(feedback.html(result)).text, Page(page.html([result], FACTS))
    totals = [line for line in cells(lms.grades_csv([result])) if line[2] == "total"]
    canvas = cells(lms.canvas_csv([result], "L (1)").text)[2][-1]
    moodle, said = cells(lms.moodle_csv([result], "L", "ID number").text)[1][1:]
    (_, marks, points, _) = of_class.tables["All students"][1]
    grade = {"graded": f"{result.points:g}", "unreadable": "0", "called like a failure": "0"}.get(kind, "")
    imported = grade if kind == "graded" else ""
    of = f"{result.of:g}"
    assert (totals[0][4], totals[0][5], canvas, moodle) == (grade, of, imported, imported)
    assert points == (f"{grade} of {of}" if grade else "–")
    assert (marks == "not graded") == (kind != "graded") == bool(result.problem)
    assert bool(re.search(r"\d of \d+ points", told)) == bool(grade)
    assert (f"{grade} of {of} points" in told) == bool(grade)
    not_yet = "Not graded yet: the grader failed on this submission."
    assert {not_yet in told, said.startswith(not_yet)} == {result.grader_failed}
    unreadable = kind in ("unreadable", "called like a failure")
    assert {"No exercise was graded." in told, "Nothing could be graded" in told} == {unreadable}
    assert said.startswith("Nothing could be graded: ") == unreadable
    assert said.startswith(f"{grade} of {of} points.") == (kind == "graded")
    assert ("No submission was graded." in of_class.text) == (kind != "graded")
    assert ("could not be graded" in of_class.text) == (kind != "graded")
    n_right = sum(row.state == "right" for row in result.exercises)
    assert ("exercises are right." in told) == (kind == "graded" and n_right == len(result.exercises))
    assert ("Most is to be gained" in told) == (kind == "graded" and n_right < len(result.exercises))
