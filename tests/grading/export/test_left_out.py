"""`course grade`, as called: whom a table for Moodle or Canvas leaves out is said, and nobody else loses a row."""

import csv
import json

import pytest
from typer.testing import CliRunner

from course_lib.cli.app import app
from course_lib.grading import engine, run
from course_lib.grading.records import Result
from course_lib.grading.sandbox import session

# Two rows of Alice's number: neither is written, for the one may be somebody else's. Carol has no number at all.
NAMES = ("Alice Example_111", "Alice Other_111", "Bob Example_222", "Carol")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A class, and grading that needs no sandbox: one point for everybody."""
    for name in NAMES:
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "04_wanda.ipynb").write_text("{}")

    def grade_all(submissions, plan, jobs):
        for submission in submissions:
            rows = engine.unreadable(submission, plan, "").exercises
            yield submission, Result(submission.student, plan.lesson, submission.origin, plan.seed, rows)

    monkeypatch.setattr(run.pool, "grade_all", grade_all)
    monkeypatch.setattr(session, "unavailable", lambda: None)
    return tmp_path


def grade(folder, *options):
    command = ["grade", str(folder / "in"), "--out", str(folder / "out"), "--lesson", "04", *options]
    return CliRunner().invoke(app, command, env={"COLUMNS": "200"})


def table(folder, name):
    with (folder / "out" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_moodles_table_has_the_others_and_the_command_fails(folder):
    result = grade(folder, "--moodle", "L4", "--known-by", "Identifier")
    assert result.exit_code == 1
    said = [line for line in result.output.splitlines() if "leaves out" in line]
    assert said == [
        "moodle.csv leaves out 'Alice Example_111': 2 submissions have the id 111; enter these grades by hand.",
        "moodle.csv leaves out 'Alice Other_111': 2 submissions have the id 111; enter these grades by hand.",
        "moodle.csv leaves out 'Carol': got no id, expected a number at its end, as in the names of the files that the "
        "course system exports.",
    ]
    assert [row[0] for row in table(folder, "moodle.csv")] == ["Identifier", "Participant 222"]
    assert {row[0] for row in table(folder, "grades.csv")[1:]} == set(NAMES)
    assert len(json.loads((folder / "out" / "grades.json").read_text(encoding="utf-8"))["results"]) == len(NAMES)


def test_so_has_that_for_canvas(folder):
    result = grade(folder, "--canvas", "Lesson 04 (1234)")
    assert result.exit_code == 1
    assert result.output.count("canvas.csv leaves out") == 3
    assert [row[0] for row in table(folder, "canvas.csv")[2:]] == ["Bob Example_222"]


def test_with_resume_it_says_so_again(folder):
    assert grade(folder, "--moodle", "L4", "--known-by", "Identifier").exit_code == 1
    again = grade(folder, "--moodle", "L4", "--known-by", "Identifier", "--resume")
    assert again.exit_code == 1
    assert again.output.count("moodle.csv leaves out") == 3


def test_where_nobody_is_left_out_nothing_is_said(folder):
    result = grade(folder, "--moodle", "L4", "--known-by", "Username")
    assert (result.exit_code, "leaves out" in result.output) == (0, False)
    assert sorted(row[0] for row in table(folder, "moodle.csv")[1:]) == sorted(NAMES)
