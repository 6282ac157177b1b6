"""Gradescope's autograder: what it shows of a result, and a run of it from the zip to results.json."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from course_lib.grading import engine
from course_lib.grading.export.gradescope_results import VISIBILITIES, results
from course_lib.grading.records import CaseResult, ExerciseResult, Result
from course_lib.grading.release import command, gradescope
from course_lib.grading.sandbox import session as sandbox
from course_lib.workbook import masters

QUIET = Console(quiet=True)
CASES = (
    CaseResult("by hand", False, None),
    CaseResult("drawn", False, "first different"),
    CaseResult("ties", True, "wrong"),
)
RIGHT = tuple(CaseResult(name, name == "ties", None) for name in ("by hand", "drawn", "ties", "zeros"))


def result(*exercises: ExerciseResult, problem: str = "") -> Result:
    notes = ("2 notebooks",)
    return Result(
        "ada@example.org", "04 Wanda", "submission/04_wanda.ipynb", 3, exercises, problem=problem, notes=notes
    )


PARTLY = ExerciseResult(
    "wanda.score",
    "The score",
    1.0,
    3.0,
    "partly",
    "drawn: first different",
    mistake="squared",
    explanation="No root.",
    hint="Look.",
    cases=CASES,
)


def test_what_a_submission_says_comes_without_control_characters():
    said = "\ud800\0\x1b[31m\u202eraised\nand more"
    row = replace(PARTLY, notes=(said,), cases=(CaseResult("by hand", False, said),))
    shown = results(replace(result(row), problem=said), "after_published", 1.0)
    texts = [shown["output"], *(test["output"] for test in shown["tests"])]
    assert all("raised\nand more" in text for text in texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", "".join(texts))


def test_points_are_split_between_what_students_see_and_what_they_do_not():
    shown = results(result(PARTLY), "after_published", 12.6)
    assert (shown["execution_time"], shown["stdout_visibility"], shown["visibility"]) == (13, "hidden", "visible")
    assert "2 notebooks" in shown["output"]
    seen, unseen = shown["tests"]
    assert (seen["score"], seen["max_score"], seen["status"], seen["visibility"]) == (1, 2, "failed", "visible")
    assert (unseen["score"], unseen["max_score"], unseen["visibility"]) == (0, 1, "after_published")
    assert seen["output"] == ("by hand: right\ndrawn: first different\nThis looks like: squared. No root.\nHint: Look.")
    assert unseen["output"].startswith("ties: wrong\n")


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_the_points_of_all_parts_are_the_points_of_the_result(visibility):
    rows = [PARTLY, ExerciseResult("wanda.b", "B", 7.0, 7.0, "right", cases=RIGHT)]
    rows.append(ExerciseResult("wanda.c", "C", 0.0, 2.0, "not found", "There is no function."))
    rows.append(ExerciseResult("wanda.d", "D", 0.67, 1.0, "partly", cases=(RIGHT[0], RIGHT[1], CASES[2])))
    everything = result(*rows)
    tests = results(everything, visibility, 1.0)["tests"]
    assert sum(test["score"] for test in tests) == pytest.approx(everything.points)
    assert sum(test["max_score"] for test in tests) == pytest.approx(everything.of)
    assert all(0 <= test["score"] <= test["max_score"] for test in tests)
    assert {test["visibility"] for test in tests} == {"visible", visibility}
    assert [test["status"] for test in tests if test["name"].startswith("B")] == ["passed"] * (
        1 if visibility == "visible" else 2
    )
    assert next(test for test in tests if test["name"] == "C")["output"] == "There is no function."


def test_a_submission_has_no_say_in_how_it_is_shown():
    loud = ExerciseResult("wanda.score", "S", 0.0, 1.0, "wrong", cases=(CaseResult("a", False, "<b>" + "x" * 9999),))
    (test,) = results(result(loud), "visible", 1.0)["tests"]
    assert test["output_format"] == "text"
    assert len(test["output"]) <= 4000


@pytest.mark.parametrize(
    ("content", "student"),
    [
        ('{"users": [{"email": "b@x.org"}, {"email": "a@x.org"}]}', "a@x.org, b@x.org"),
        ('{"users": [{"email": null, "name": "Ada"}]}', "Ada"),
        ('{"users": []}', "unknown"),
        ("[]", "unknown"),
        ("no json", "unknown"),
    ],
)
def test_who_handed_in(tmp_path, content, student):
    (tmp_path / "metadata.json").write_text(content)
    assert gradescope.student_of(tmp_path / "metadata.json") == student
    assert gradescope.student_of(tmp_path / "nothing.json") == "unknown"


def test_the_newest_attempt_counts_whatever_it_is_called(tmp_path):
    plan = engine.Plan("04 Wanda", "04_wanda", {"wanda.score": "wanda_score"}, "key", kind="none")
    for hour, (name, content) in enumerate({"04_wanda.ipynb": "", "mine.ipynb": '"wanda.score"'}.items()):
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (3600 * hour, 3600 * hour))
    assert gradescope.submission(tmp_path, "ada", plan).origin == "mine.ipynb"
    assert gradescope.submission(tmp_path / "nowhere", "ada", plan).problem == "nothing was handed in."


def test_one_autograder_is_for_one_lesson(tmp_path):
    with pytest.raises(ValueError, match="got 2 lessons; a Gradescope autograder is for one: add --lesson 04"):
        command.run(None, None, tmp_path / "a.zip", ["00", "04"], QUIET)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The zip, unpacked as Gradescope does it."""
    folder = tmp_path_factory.mktemp("autograder")
    command.run(None, None, folder / "autograder.zip", ["00"], QUIET)
    with zipfile.ZipFile(folder / "autograder.zip") as archive:
        archive.extractall(folder / "source")
    return folder


def test_the_zip_has_what_gradescope_runs_and_no_masters(made):
    with zipfile.ZipFile(made / "autograder.zip") as archive:
        rights = {entry.filename: stat.S_IMODE(entry.external_attr >> 16) for entry in archive.infolist()}
    assert {name for name, right in rights.items() if right == 0o755} == {"setup.sh", "run_autograder"}
    assert {"requirements.lock", "pyproject.toml", "course_lib/grading/engine.py"} <= rights.keys()
    assert not [name for name in rights if name.startswith(("solutions/", "tests/", "notebooks/"))]
    for name in ("setup.sh", "run_autograder"):
        assert subprocess.run(["bash", "-n", str(made / "source" / name)], check=False).returncode == 0


def handed_in(folder: Path, notebook: bytes) -> None:
    """As Gradescope puts it: under whatever name the student gave it."""
    (folder / "submission").mkdir(exist_ok=True)
    (folder / "submission" / "mine (final).ipynb").write_bytes(notebook)
    (folder / "submission" / "notes.txt").write_text("hello")
    (folder / "submission_metadata.json").write_text('{"users": [{"email": "ada@example.org"}]}')


def run(folder: Path, sandbox: str, own_copy: bool = False, **more: str) -> subprocess.CompletedProcess:
    """run_autograder with its settings, on this folder in place of /autograder."""
    script = (folder / "source" / "run_autograder").read_text().replace("SANDBOX=bwrap\n", f"SANDBOX={sandbox}\n")
    environment = os.environ | {"AUTOGRADER": str(folder), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"} | more
    environment |= {"PYTHONPATH": str(folder / "source")} if own_copy else {}
    return subprocess.run(
        [shutil.which("bash"), "-c", script], env=environment, capture_output=True, text=True, check=False
    )


def answers() -> bytes:
    """Lesson 00 with all solutions, but for one of two points."""
    text = masters.as_text(masters.with_solutions(masters.masters(["00"])[0]))
    assert "return torch.maximum(computing" in text
    return text.replace("return torch.maximum(computing", "return torch.minimum(computing").encode()


@pytest.mark.skipif(bool(sandbox.unavailable()), reason=f"no sandbox: {sandbox.unavailable()}")
@pytest.mark.parametrize("own_copy", [False, True], ids=["installed", "as unpacked"])
def test_from_the_zip_to_results_in_the_sandbox(made, own_copy):
    handed_in(made, answers())
    done = run(made, "bwrap", own_copy)
    assert done.returncode == 0, done.stderr
    shown = json.loads((made / "results" / "results.json").read_text())
    points = {}
    for test in shown["tests"]:
        points[test["number"][0]] = points.get(test["number"][0], 0) + test["score"]
    assert [points[n] for n in "1235"] == pytest.approx([1, 2, 2, 2])
    assert points["4"] == 0  # right in one case alone, a worked example in which the two times are equal
    said = next(t for t in shown["tests"] if t["number"] == "4")["output"]
    assert "the shorter of the two" in said
    assert "Points: right so far: the worked example. Such a case earns points once a case that" in said
    assert "without a sandbox" not in shown["output"]


def test_without_a_sandbox_nothing_is_graded_and_nobody_gets_zero_points(made):
    handed_in(made, answers())
    (made / "results" / "results.json").unlink(missing_ok=True)
    done = run(made, "bwrap", PATH="/nowhere")  # where there is no bubblewrap
    assert done.returncode != 0
    assert "bubblewrap" in done.stdout
    assert not (made / "results" / "results.json").exists()


def test_with_what_the_zip_holds_and_deliberately_no_sandbox(made):
    """The outer part comes from the zip: all that it imports is in it."""
    handed_in(made, b"no notebook at all")
    done = run(made, "none", own_copy=True)
    assert done.returncode == 0, done.stderr
    shown = json.loads((made / "results" / "results.json").read_text())
    assert "This was graded without a sandbox (SANDBOX=none" in shown["output"]
    assert sum(test["score"] for test in shown["tests"]) == 0
    assert sum(test["max_score"] for test in shown["tests"]) == 9
    assert all(test["output"] for test in shown["tests"])


def test_nothing_handed_in_gets_its_rows(made, monkeypatch):
    """In this process: that the script starts it is seen above."""
    (made / "submission").mkdir(exist_ok=True)
    for path in (made / "submission").iterdir():
        path.unlink()
    (made / "results" / "results.json").unlink(missing_ok=True)
    (made / "results").mkdir(exist_ok=True)
    monkeypatch.setenv("AUTOGRADER", str(made))
    assert gradescope.main(["--sandbox", "none"]) == 0
    shown = json.loads((made / "results" / "results.json").read_text())
    assert "nothing was handed in" in shown["output"] or "no notebook" in shown["output"]
    assert len(shown["tests"]) == 5


def test_no_score_is_better_than_part_of_one(made, monkeypatch, capsys):
    """Where the grader failed, Gradescope shows that to the instructor, and no points to the student."""
    (made / "results" / "results.json").unlink(missing_ok=True)
    monkeypatch.setenv("AUTOGRADER", str(made))
    lost = replace(result(PARTLY), problem=f"{engine.LOST} wanda.score.", grader_failed=True)
    monkeypatch.setattr(engine, "grade", lambda *_: lost)
    assert gradescope.main(["--sandbox", "none"]) == 1
    assert "The grader failed" in capsys.readouterr().out
    assert not (made / "results" / "results.json").exists()
