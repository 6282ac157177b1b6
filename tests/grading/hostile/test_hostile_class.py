"""A class in which some are hostile: who sits beside them loses nothing, and names are only ever names."""

import csv
import io
import json

from page_reader import Page
from rich.console import Console
from submitting import left_over, needs_sandbox, notebook

from course_lib.grading import engine, run
from course_lib.grading.run import Request
from course_lib.grading.sandbox import session, started
from course_lib.workbook import masters

HOSTILE = """
import glob
import os
import signal

import torch

tried = []

def attack(*arguments):
    for attempt in () if tried else (
        lambda: [os.kill(n, signal.SIGKILL) for n in range(2, 300) if n != os.getpid()],
        lambda: os.kill(-1, signal.SIGSTOP),
        lambda: [os.fork() for _ in range(20)],
        lambda: [open(f"/tmp/{n}", "wb").write(bytes(2**20)) for n in range(10)],
        lambda: [os.chmod(name, 0) for name in glob.glob("/tmp/*")],
        lambda: torch.set_num_threads(64),
    ):
        try:
            attempt()
        except BaseException:
            pass
    tried.append(True)
    return 0.0
"""
# Asks for the key to the hidden cases twice, in the words of the process that runs it.
ASKING = """
import sys

def sparsity(tensor):
    from course_lib.grading.sandbox import frames

    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["channel"].send(frames.HIDDEN)
    frame.f_locals["channel"].send(frames.HIDDEN)
"""
ATTACKED = ("sparsity", "intensity", "step_seconds", "speedup", "cache_bytes")


@needs_sandbox
def test_who_sits_beside_attackers_gets_all_points(tmp_path):
    cells = [HOSTILE, *(f'{name} = attack\ncheck("start.{name}", {name})' for name in ATTACKED)]
    honest = masters.as_text(masters.with_solutions(masters.masters(["00"])[0])).encode()
    for number in range(2):
        hostile = notebook(*cells), notebook(ASKING, 'check("start.sparsity", sparsity)', *cells[:1], *cells[2:])
        for name, content in (("mallory", hostile[number]), ("honest", honest)):
            (tmp_path / "in" / f"{name}{number}").mkdir(parents=True)
            (tmp_path / "in" / f"{name}{number}" / "00_start_here.ipynb").write_bytes(content)
    console = Console(file=io.StringIO(), width=200)
    assert run.run(Request(tmp_path / "in", tmp_path / "out", "00", jobs=2), console) == 0
    points = {}
    for result in json.loads((tmp_path / "out" / "grades.json").read_text(encoding="utf-8"))["results"]:
        points[result["student"]] = [row["points"] for row in result["exercises"]]
    assert points == {
        "honest0": [1.0, 2.0, 2.0, 2.0, 2.0],
        "honest1": [1.0, 2.0, 2.0, 2.0, 2.0],
        "mallory0": [0.0] * 5,
        "mallory1": [0.0] * 5,
    }
    started.close()
    assert left_over() == []


NAMES = (
    "<script>alert(1)<",
    "'\"><img src=x onerror=alert(1)>",
    "=cmd|' !A0",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\u202egnp.exe",
    "a;=HYPERLINK(1)",
    "bob\nalice",
    "CON",
    "hidden." * 20,
    "{}{0}%s$&",
    "javascript:alert(1)",
    "&lt;b&gt;",
)


def test_names_of_markup_and_formulas_stay_names(tmp_path, monkeypatch):
    """Of folders, as students may choose them: everybody has a page and rows, and nothing of a name comes alive."""
    for name in NAMES:
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "04_wanda.ipynb").write_text("{}")

    def grade_all(submissions, plan, jobs):
        return ((each, engine.unreadable(each, plan, f"of {each.student}")) for each in submissions)

    monkeypatch.setattr(run.pool, "grade_all", grade_all)
    monkeypatch.setattr(session, "unavailable", lambda: None)
    request = Request(tmp_path / "in", tmp_path / "out", "04", moodle="L4", known_by="Username")
    run.run(request, Console(file=io.StringIO(), width=200))
    out = tmp_path / "out"
    assert len(list((out / "feedback").glob("*.html"))) == len(NAMES)
    for path in (out / "grades.csv", out / "moodle.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]
        assert not [cell for cell in cells if cell.startswith("-") and not cell[1:].replace(".", "").isdigit()]
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        assert len({row["student"] for row in csv.DictReader(file)}) == len(NAMES)
    for path in [*(out / "feedback").glob("*.html"), out / "report.html"]:
        page = Page(path.read_text(encoding="utf-8"))
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert not {"img", "iframe", "base", "form", "object"} & page.tags
