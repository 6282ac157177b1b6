"""The README is short, begins with the two commands that matter, and lists every lesson with its minutes."""

import re

from course_lib.workbook.catalogue import lessons
from course_lib.workbook.masters import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_has_at_most_120_lines():
    assert len(TEXT.splitlines()) <= 120


def test_the_first_block_of_commands_opens_a_lesson_and_tests_everything():
    assert re.findall(r"^make (\w+)", re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)[1], re.MULTILINE) == [
        "lab",
        "test",
    ]


def test_every_lesson_is_listed_with_its_minutes():
    rows = dict(re.findall(r"^\| \[(\d\d)[^|]*\|[^|]*\| (\d+) \|$", TEXT, re.MULTILINE))
    assert rows == {m.LESSON[:2]: str(sum(e.minutes for e in m.EXERCISES)) for m in lessons()}


def test_the_main_commands_are_listed():
    assert {"doctor", "lab", "progress", "grade"} <= set(re.findall(r"^\| `course ([\w-]+)", TEXT, re.MULTILINE))
