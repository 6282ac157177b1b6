"""Grades as tables: right numbers, what Canvas and Moodle expect, and nothing that a spreadsheet would run."""

import csv
import io
import re

import pytest
from hostile import LONG, PAYLOADS, hostile_result
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_class import made_up_class

from course_lib.grading.export import csv_safe, lms
from course_lib.grading.records import CaseResult, ExerciseResult, Result

RUNS = re.compile(r"[\s'\"]*[=+\-@＝＋－＠\t]")


def student(name, points=1.5, state="partly", problem="", mistake=""):
    cases = (CaseResult("by hand", False, None), CaseResult("37 × 96", False, "got 1, expected 2"))
    row = ExerciseResult(
        "wanda.score", "The score", points, 2.0, state, "why", mistake=mistake, cases=cases, seconds=0.25
    )
    other = ExerciseResult("wanda.n_of_m", "N of M", 3.0, 3.0, "right", cases=cases[:1], seconds=1.0)
    return Result(name, "04 Wanda", "class/x.ipynb", 7, (row, other), problem=problem)


def read(text):
    return list(csv.reader(io.StringIO(text.removeprefix(csv_safe.MARK))))


def test_a_student_has_a_row_an_exercise_and_one_total():
    made = lms.rows([student("anna", mistake="squared norm"), student("ben", problem="no notebook")])
    assert list(made[0].values()) == [
        *("anna", "04 Wanda", "wanda.score", "The score", "1.5", "2", "partly", "1", "2"),
        *("squared norm", "why", "0.25"),
    ]
    assert list(made[2].values()) == ["anna", "04 Wanda", "total", "", "4.5", "5", "", "2", "3", "", "", "1.25"]
    assert [row["student"] for row in made] == ["anna"] * 3 + ["ben"] * 3
    assert made[5]["reason"] == "no notebook"


def test_the_table_says_what_the_results_say():
    class_ = made_up_class(80)
    heads, *lines = read(lms.grades_csv(class_))
    assert heads == list(lms.COLUMNS)
    assert len(lines) == sum(len(result.exercises) + 1 for result in class_)
    totals = [float(line[4]) for line in lines if line[2] == "total"]
    assert totals == [round(sum(row.points for row in result.exercises), 2) for result in class_]
    assert read(lms.grades_csv([])) == [list(lms.COLUMNS)]


def test_a_spreadsheet_sees_the_encoding():
    assert lms.grades_csv([student("Søren")]).encode("utf-8").startswith(b"\xef\xbb\xbfstudent,")
    assert not lms.canvas_csv([student("12")], "L (1)").text.startswith(csv_safe.MARK)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("-5", "-5"),
        ("+41.50", "+41.50"),
        ("007", "007"),
        ("anna", "anna"),
        ("a-b@c.org", "a-b@c.org"),
        ("=1+1", "'=1+1"),
        ("-5+cmd", "'-5+cmd"),
        ("-1e5", "'-1e5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),
        ("\r\n+x", "'+x"),
        ("\x00=1", "\ufffd=1"),
        (' "=1', "'\"=1"),
        ("＝1", "'＝1"),
        ("a;=1", "a,=1"),
        ("a; '-x", "a, '-x"),
        ("one; two", "one; two"),
        ("\u202e=1", "'=1"),
    ],
)
def test_formulas_become_text_and_numbers_stay(text, safe):
    assert csv_safe.cell(text) == safe


@settings(deadline=None, max_examples=100)
@given(st.text(st.sampled_from("=+-@;,\"' \t\r\n\x00\x1b[m\u202e\ud8005ae"), max_size=12))
def test_no_text_can_be_run(text):
    made = csv_safe.cell(text)
    made.encode("utf-8")
    assert not RUNS.match(made) or made.startswith("'") or re.fullmatch(r"[+-]?\d+(\.\d+)?", made)
    assert not re.search(r";[\s'\"]*[=+\-@]", made)
    assert read(csv_safe.written(["a"], [[made or "-"]]))[1] == [made or "-"]


@pytest.mark.parametrize("text", [*PAYLOADS, LONG], ids=range(len(PAYLOADS) + 1))
def test_nothing_a_submission_says_is_run_or_unbounded(text):
    results = [hostile_result(text), hostile_result(f"b{text}", text)]
    tables = (
        lms.grades_csv(results),
        lms.canvas_csv(results, text, "SIS Login ID").text,
        lms.moodle_csv(results, text, "Username").text,
    )
    for table in tables:
        table.encode("utf-8")
        assert len(table) < 60_000
        lines = read(table)
        assert len({len(line) for line in lines}) == 1
        for value in (value for line in lines for value in line):
            assert value.startswith("'") or not RUNS.match(value) or value == "-"
            assert "\n" not in value


def test_canvas_gets_the_lines_of_its_own_export():
    made = lms.canvas_csv([student("1031"), student("1044", problem="no notebook")], "Lesson 04 (77)").text
    assert made.split("\r\n") == [
        "Student,ID,SIS User ID,SIS Login ID,Section,Lesson 04 (77)",
        "Points Possible,,,,,5",
        "1031,1031,,,,4.5",
        "1044,1044,,,,",  # not graded: nothing changes
        "",
    ]
    (line,) = read(lms.canvas_csv([student("jsmith_late_1031")], "L (1)").text)[2:]
    assert line == ["jsmith_late_1031", "1031", "", "", "", "4.5"]
    (line,) = read(lms.canvas_csv([student("jsmith")], "L (1)", "SIS Login ID").text)[2:]
    assert line == ["jsmith", "", "", "jsmith", "", "4.5"]
    (line,) = read(lms.canvas_csv([student("Points Possible")], "L (1)", "SIS User ID").text)[2:]
    assert line[0] == "-"  # or its grade would become everybody's maximum


@pytest.mark.parametrize(
    ("assignment", "names", "says"),
    [
        ("Final Score", ["1"], "without words such as"),
        (" ", ["1"], "expected the heading"),
    ],
)
def test_what_canvas_would_misread_is_refused(assignment, names, says):
    with pytest.raises(ValueError, match=says):
        lms.canvas_csv([student(name) for name in names], assignment)


@pytest.mark.parametrize(
    ("names", "left", "says"),
    [
        (["12abc"], [], "expected a number at its end"),
        (["anna_12", "ben_12", "13"], ["13"], "2 submissions have the id 12"),
        (["12", "012", "13"], ["13"], "2 submissions have the id 12"),
        (["0", "13"], ["13"], "expected a number at its end"),
        (["", "13"], ["13"], "expected a number at its end"),
    ],
)
def test_whom_canvas_would_misread_is_left_out_and_the_others_are_not(names, left, says):
    made = lms.canvas_csv([student(name) for name in names], "L (1)")
    assert [line[1] for line in read(made.text)[2:]] == left
    assert len(made.left_out) == len(names) - len(left)
    assert all(says in reason for reason in made.left_out)


def test_moodle_gets_grade_and_feedback_by_the_id_asked_for():
    results = [student("a@x.org", mistake="p < 1/2 & n"), student("b@x.org", problem="no notebook")]
    assert read(lms.moodle_csv(results, "Lesson 04").text) == [
        ["Email address", "Lesson 04", "Feedback: Lesson 04"],
        [
            "a@x.org",
            "4.5",
            "4.5 of 5 points. The score: partly right, 1.5 of 2, looks like: p &lt; 1/2 &amp; n. "
            "N of M: right, 3 of 3.",
        ],
        ["b@x.org", "", "Nothing could be graded: no notebook"],
    ]
    assert read(lms.moodle_csv(results, "L", "ID number").text)[0] == ["ID number", "L", "Feedback: L"]


def test_moodles_worksheet_knows_participants_by_number():
    names = ("4711", "Participant 4712", "Jo Smith_4713")
    heads, line, *rest = read(lms.moodle_csv([student(name) for name in names], "L", "Identifier").text)
    assert heads == ["Identifier", "Grade", "Last modified (grade)", "Feedback comments"]
    assert line[:3] == ["Participant 4711", "4.5", ""]
    assert [each[0] for each in rest] == ["Participant 4712", "Participant 4713"]
    made = lms.moodle_csv([student("anna"), student("12")], "L", "Identifier")
    assert [line[0] for line in read(made.text)[1:]] == ["Participant 12"]
    assert made.left_out == (
        "'anna': got no id, expected a number at its end, as in the names of the files that the course system exports.",
    )


@pytest.mark.parametrize("names", [["b", ""], ["b", "0"], ["b", "a", "a"], ["b", "a", "\u202ea"]])
def test_grades_that_moodle_would_give_to_somebody_else_are_left_out(names):
    made = lms.moodle_csv([student(name) for name in names], "L")
    assert [line[0] for line in read(made.text)[1:]] == ["b"]
    assert len(made.left_out) == len(names) - 1
