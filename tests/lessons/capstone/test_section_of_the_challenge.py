"""The section on the challenge: its numbers are those of the commands and of the grader."""

import re

import pytest
from typer.main import get_command

from course_lib.cli.app import app
from course_lib.compose.challenge.points import Anchors, by_domain, worth
from course_lib.compose.shares import shapley
from course_lib.grading.challenge.run import Request
from course_lib.lessons.capstone.estimates import parts_results, values_of
from course_lib.workbook.masters import ROOT

MASTER = (ROOT / "solutions" / "12_capstone.py").read_text(encoding="utf-8")


def section() -> str:
    """As running text."""
    found = re.search(r"^# ## 8\..*?(?=^# ## 9\.)", MASTER, flags=re.M | re.S).group()
    return " ".join(found.replace("\n# ", " ").replace("*", "").split())


def test_students_are_told_that_their_own_number_is_not_the_grade():
    windows = next(each for each in get_command(app).commands["challenge"].params if each.name == "windows")
    said = re.search(
        r"Your own number is not the grade\. `course challenge` reads (\w+) windows of each text\. "
        r"The grader reads (\d+), from the same articles, chosen by a seed",
        section(),
    )
    assert said, section()[-1500:]
    assert (said[1], int(said[2])) == ({4: "four"}[windows.default], Request.windows)
    assert "adds numbers in another order" in section()


def test_the_example_is_scored_as_the_grader_does():
    rows = re.findall(r"\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| [\d. /]+ = ([\d.]+) \|", section())
    assert len(rows) == 2
    losses = {name: [tuple(2 * [float(row[at])]) for row in rows] for at, name in enumerate(("uniform", "master"), 1)}
    texts = [row[0] for row in rows]
    anchors = Anchors(dense={}, **{name: dict(zip(texts, each, strict=True)) for name, each in losses.items()})
    own = {row[0]: tuple(2 * [float(row[3])]) for row in rows}
    shares = by_domain(own, anchors)
    assert {row[0]: pytest.approx(float(row[4])) for row in rows} == shares
    assert f"this recipe gets $20 \\cdot 0.50 = {worth(min(shares.values())):.0f}$ points" in section()


def test_the_worked_shapley_values_are_those_of_the_library():
    values = values_of(parts_results(), "wikipedia")
    two = {parts: each for parts, each in values.items() if parts <= {"prune", "round"}}
    found = {name: f"**{float(each.mean()):.3f}**" for name, each in shapley(two, ("prune", "round")).items()}
    assert f"| **mean** | {found['prune']} | {found['round']} |" in MASTER
