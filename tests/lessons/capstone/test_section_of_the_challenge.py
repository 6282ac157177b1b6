"""Section 10 of the lesson: what it says of the student's own number, beside what the commands do."""

import re

from typer.main import get_command

from course_lib.cli.app import app
from course_lib.grading.challenge.run import Request
from course_lib.workbook.masters import ROOT

MASTER = (ROOT / "solutions" / "12_capstone.py").read_text(encoding="utf-8")


def section() -> str:
    """As running text."""
    found = re.search(r"^# ## 10\..*?(?=^# ## 11\.)", MASTER, flags=re.M | re.S).group()
    return " ".join(found.replace("\n# ", " ").replace("*", "").split())


def test_students_are_told_that_their_own_number_is_not_the_grade():
    windows = next(each for each in get_command(app).commands["challenge"].params if each.name == "windows")
    said = re.search(
        r"Your own number is not the grade\. `course challenge` reads (\w+) windows of each domain, "
        r"the grader (\d+), drawn from the same articles by a seed",
        section(),
    )
    assert said, section()[-1500:]
    assert (said[1], int(said[2])) == ({4: "four"}[windows.default], Request.windows)
    assert "order of sums" in section()
