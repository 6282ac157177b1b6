"""What the README says exists: commands, files, targets, and the minutes of each lesson."""

import re

import pytest
from typer.main import get_command

from course_lib.cli.app import app
from course_lib.workbook.catalogue import lessons
from course_lib.workbook.masters import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_exists():
    named = set(re.findall(r"`(?:\.venv/bin/)?course ([\w-]+)", TEXT))
    assert {"doctor", "setup", "lab", "progress"} <= named
    assert named <= set(get_command(app).commands) | {"NAME"}


def test_every_target_exists():
    named = set(re.findall(r"^make (\w+)|`make (\w+)", TEXT, re.MULTILINE))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"".join(pair) for pair in named} <= targets


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_every_link_leads_somewhere(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:course_lib|tests|kernels)/[\w/.]*)`", TEXT))))
def test_every_path_exists(path):
    assert (ROOT / path).exists()


def test_every_lesson_is_listed_with_its_minutes():
    rows = dict(re.findall(r"^\| \[(\d\d)[^|]*\|[^|]*\| (\d+) \|$", TEXT, re.MULTILINE))
    assert rows == {m.LESSON[:2]: str(sum(e.minutes for e in m.EXERCISES)) for m in lessons()}
