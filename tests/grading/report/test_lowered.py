"""Where a rule lowers the points, each place says so in the same words: page, tables, Gradescope, check, nbgrader."""

import csv
import io

import pytest
import torch
from page_reader import Page

from course_lib.checking import judge as judge_module
from course_lib.checking.call import call
from course_lib.checking.judge import judge
from course_lib.grading import engine
from course_lib.grading.export import gradescope_results, lms
from course_lib.grading.records import Answer, Result
from course_lib.grading.release import nbgrader_cell
from course_lib.grading.report import feedback
from course_lib.workbook import show
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import SEED, CheckFailed
from course_lib.workbook.progress import Record

PRUNE, BYTES = find("classic.prune"), find("patterns.bytes")
WHY = "those for which returning zeros is enough. Such cases earn points once a case that needs the method is right"
ZEROS = f"3 of 12 cases are right: {WHY}."


def zeros(weight, hessian, limit):
    return torch.zeros_like(weight)


def graded(exercise, function):
    """The result of a student who handed in this alone."""
    visible, hidden = engine.draw(exercise, "ada", 0)
    outcomes = tuple(call(function, case.arguments) for case in visible + hidden)
    row = engine.exercise_result(exercise, visible, hidden, Answer(exercise.id, "ran", outcomes))
    return Result("ada", "02 Optimal brain damage", "ada.ipynb", 0, (row,))


@pytest.fixture(scope="module")
def result():
    return graded(PRUNE, zeros)


def test_the_students_page_says_it(result):
    text = Page(feedback.html(result)).text
    assert "0 of 6 points" in text
    assert "3 of 12 cases right" in text
    assert ZEROS in text


def test_the_tables_say_it(result):
    rows = list(csv.DictReader(io.StringIO(lms.grades_csv([result]).lstrip("\ufeff"))))
    assert (rows[0]["points"], rows[0]["cases_right"]) == ("0", "3")
    assert rows[0]["reason"].endswith(f"; {ZEROS.rstrip('.')}")
    moodle = lms.moodle_csv([result], "Lesson 02", "Username").text
    assert f"partly right, 0 of 6 (right so far: {WHY})" in moodle


@pytest.mark.parametrize("visibility", ["visible", "after_published"])
def test_gradescope_says_it_and_no_number_of_hidden_cases(result, visibility):
    tests = gradescope_results.results(result, visibility, 1.0)["tests"]
    assert sum(test["score"] for test in tests) == 0
    assert f"Points: right so far: {WHY}." in tests[0]["output"]
    assert "12 cases" not in tests[0]["output"]


def test_check_and_nbgrader_say_it_of_the_cases_that_they_have():
    verdict = judge(PRUNE, zeros)
    one = "one for which returning zeros is enough. Such a case earns points once a case that needs the method is right"
    said = f"1 of 8 cases is right: {one}."
    assert f"Points: {said}" in show.as_text(verdict, Record())
    assert said in show.as_html(verdict, Record())
    assert nbgrader_cell.points_for(verdict) == 0.0
    with pytest.raises(CheckFailed, match="classic.prune is wrong: right so far: one for which"):
        nbgrader_cell.check(PRUNE.id, zeros)


def test_check_and_grading_give_the_same_points_for_the_same_cases():
    """Named mistakes, and answers without the idea: all by the one function `judge.credit`."""
    for exercise in (PRUNE, BYTES):
        cases = exercise.cases(torch.Generator().manual_seed(SEED))
        for function in (exercise.reference, zeros, *(mistake.function for mistake in exercise.mistakes)):
            verdict = judge(exercise, function)
            outcomes = tuple(call(function, case.arguments) for case in cases[: len(verdict.differences)])
            row = engine.exercise_result(exercise, cases, [], Answer(exercise.id, "ran", outcomes))
            credit = judge_module.credit(verdict.n_right, verdict.n_cases, verdict.easy)
            assert row.points == nbgrader_cell.points_for(verdict) == round(exercise.points * credit, 2)


def test_a_named_mistake_earns_what_its_cases_earn():
    pairs = [(exercise, mistake) for exercise in (PRUNE, BYTES) for mistake in exercise.mistakes]
    rows = [(exercise, graded(exercise, mistake.function).exercises[0]) for exercise, mistake in pairs]
    often = [(exercise, row) for exercise, row in rows if row.mistake and row.points > exercise.points / 3]
    assert often, "no mistake of these is right in more than a third of the cases; choose another exercise"
    for exercise, row in often:
        n_right = sum(case.difference is None for case in row.cases)
        assert (row.points, row.lowered) == (round(exercise.points * n_right / len(row.cases), 2), "")


def test_where_nothing_is_lowered_nothing_is_said():
    for function in (PRUNE.reference, lambda *a: None):
        assert graded(PRUNE, function).exercises[0].lowered == ""
    text = show.as_text(judge(find("wanda.score"), lambda w, x: w.abs()), Record())
    assert "Points:" not in text
