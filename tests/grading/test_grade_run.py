"""A class graded from end to end: the grades are those that are deserved, and no end that a run can take costs any."""

import csv
import ctypes
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from submitting import needs_sandbox
from synthetic import classroom
from synthetic.kinds import KINDS
from synthetic.layouts import LAYOUTS

from course_lib.grading import engine, run, store
from course_lib.grading.intake.submission import Submission
from course_lib.grading.intake.submissions import find, newest
from course_lib.grading.run import Request
from course_lib.grading.sandbox import bubblewrap, session

PR_SET_CHILD_SUBREAPER = 36
# Waits after the first result, while its workers go on: how far a run comes until it is ended depends on no clock.
COMMAND = """
import signal
import sys
import time
from pathlib import Path
from rich.console import Console
from course_lib.grading import store
from course_lib.grading.run import Request, run

def save_and_wait(*arguments, save=store.save):
    save(*arguments)
    time.sleep(600)

store.save = save_and_wait
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
sys.exit(run(Request(Path(sys.argv[1]), Path(sys.argv[2]), "00", jobs=2), Console()))
"""


def grade(folder, out, lesson="04", **settings):
    console = Console(file=io.StringIO(), width=200)
    code = run.run(Request(folder, out, lesson, **settings), console)
    return code, console.file.getvalue()


def results(out):
    stored = json.loads((out / "grades.json").read_text(encoding="utf-8"))["results"]
    return [store.from_json(each) for each in stored]


def table(out, *leave_out):
    """The rows of grades.csv."""
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return [{k: v for k, v in row.items() if k not in leave_out} for row in csv.DictReader(file)]


# A whole class ---------------------------------------------------------------------------------------------------


def brief(*arguments, plan=engine.plan, **settings):
    """A plan by which an endless call ends soon; nobody else in the class needs a second of computing."""
    full = plan(*arguments, **settings)
    return dataclasses.replace(full, limits=dataclasses.replace(full.limits, call_seconds=6.0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every kind of student there is, graded."""
    folder = tmp_path_factory.mktemp("whole")
    truths = classroom.make(folder, "04", len(KINDS), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "plan", brief)
        code, said = grade(folder / "submissions", folder / "out", jobs=2)
    assert code == 0
    return folder / "out", truths, said


@needs_sandbox
def test_the_grades_are_the_truth_for_everyone_exactly_once(whole):
    out, truths, said = whole
    assert [truth.kind for truth in truths] == list(KINDS)
    assert classroom.differences(truths, results(out)) == []
    assert f"{len(truths)} submissions graded" in said


@needs_sandbox
def test_a_call_that_never_ends_is_ended_after_the_seconds_of_the_plan(whole):
    out, truths, _ = whole
    student = next(truth.student for truth in truths if truth.kind == "an endless loop")
    reasons = [row["reason"] for row in table(out) if row["student"] == student]
    assert any("did not finish within 6 seconds" in reason for reason in reasons)


@needs_sandbox
def test_the_table_has_all_rows_of_everyone(whole):
    out, truths, _ = whole
    rows = table(out)
    expected = [(truth.student, name) for truth in truths for name in (*(e.exercise for e in truth.exercises), "total")]
    assert sorted((row["student"], row["exercise"]) for row in rows) == sorted(expected)
    totals = {row["student"]: float(row["points"]) for row in rows if row["exercise"] == "total"}
    assert totals == {truth.student: truth.points for truth in truths}
    assert all(row["reason"] for row in rows if row["state"] in ("failed", "not found", "no submission"))
    assert len(list((out / "feedback").glob("*.html"))) == len(truths)


@needs_sandbox
def test_another_layout_and_another_number_of_processes_change_nothing(whole, tmp_path):
    out, _, _ = whole
    truths = classroom.make(tmp_path, "04", 6, 0, layout="moodle")
    assert grade(tmp_path / "submissions", tmp_path / "out", jobs=1)[0] == 0
    assert classroom.differences(truths, results(tmp_path / "out")) == []
    students = {truth.student for truth in truths}
    before = [row for row in table(out, "seconds") if row["student"] in students]
    assert sorted(map(str, table(tmp_path / "out", "seconds"))) == sorted(map(str, before))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_as_it_is_meant(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(classroom, "deserved", lambda exercise, *rest: classroom.Deserved(exercise.id, "", 0.0))
    truths = {each.kind: each.student for each in classroom.make(tmp_path, "00", len(KINDS), 0, layout=layout)}
    found = {each.student: each for each in newest(find(tmp_path / "submissions"), "00_start_here")}
    assert set(found) == set(truths.values())
    assert found[truths["two notebooks"]].notes
    assert found[truths["two notebooks"]].origin.endswith("00_start_here.ipynb")
    nothing = {kind for kind, student in truths.items() if found[student].problem}
    assert nothing == {"no notebook", "another lesson"}


# Kept results ----------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Grading that needs no sandbox, and says whom it graded."""
    graded = []

    def grade_all(submissions, plan, jobs):
        for submission in submissions:
            graded.append(submission.student)
            yield submission, engine.unreadable(submission, plan, f"made up from {len(submission.read())} bytes")

    monkeypatch.setattr(run.pool, "grade_all", grade_all)
    monkeypatch.setattr(session, "unavailable", lambda: None)
    return graded


@pytest.fixture
def three(tmp_path):
    for student in ("ada", "alan", "hedy"):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / "04_wanda.ipynb").write_text("{}")
    return tmp_path / "in", tmp_path / "out"


def test_what_is_graded_is_graded_again_only_where_something_changed(counted, three, monkeypatch):
    folder, out = three
    assert grade(folder, out)[0] == 0
    assert sorted(counted) == ["ada", "alan", "hedy"]
    counted.clear()
    before = table(out)
    assert grade(folder, out, resume=True)[0] == 0
    assert counted == []
    assert table(out) == before
    (folder / "alan" / "04_wanda.ipynb").write_text("{ }")
    (folder / "hedy" / "04_wanda.ipynb").touch()
    grade(folder, out, resume=True)
    assert counted == ["alan"]
    assert [row["reason"] for row in table(out) if row["student"] == "alan"] == ["made up from 3 bytes"] * 9
    counted.clear()
    monkeypatch.setattr(engine, "VERSION", 99)
    grade(folder, out, resume=True)
    assert sorted(counted) == ["ada", "alan", "hedy"]
    counted.clear()
    grade(folder, out, resume=True, seed=1)
    assert sorted(counted) == ["ada", "alan", "hedy"]


def test_a_damaged_result_and_a_new_student_are_graded(counted, three):
    folder, out = three
    grade(folder, out)
    counted.clear()
    store.path_of(out, "ada").write_text('{"key"')
    (folder / "zoe").mkdir()
    (folder / "zoe" / "04_wanda.ipynb").write_text("{}")
    grade(folder, out, resume=True)
    assert sorted(counted) == ["ada", "zoe"]
    assert {row["student"] for row in table(out)} == {"ada", "alan", "hedy", "zoe"}


def test_where_the_grader_itself_failed_the_command_fails_and_resume_grades_anew(counted, three, monkeypatch):
    folder, out = three
    grade_all = run.pool.grade_all

    def failing(submissions, plan, jobs):
        for submission, result in grade_all(submissions, plan, jobs):
            defect = submission.student == "ada"
            yield submission, engine.failed(submission, plan, RuntimeError("a defect")) if defect else result

    with monkeypatch.context() as patch:
        patch.setattr(run.pool, "grade_all", failing)
        code, said = grade(folder, out)
    assert code == 1
    assert "The grader itself failed on 1. Fix the cause; `--resume` grades them again." in said
    counted.clear()
    assert grade(folder, out, resume=True)[0] == 0
    assert counted == ["ada"]


@needs_sandbox
def test_a_file_that_is_no_notebook_is_named_with_its_reason(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "zoe_04_wanda.ipynb").write_text("my \x1b[31mnotes")
    code, said = grade(tmp_path / "class", tmp_path / "out", jobs=1)
    assert code == 0
    assert "0 could not be graded, in 1 nothing ran." in said
    assert "  zoe, zoe_04_wanda.ipynb: nothing ran. No notebook can be read from the file: it is not JSON (" in said
    (page,) = (tmp_path / "out" / "feedback").glob("*.html")
    assert "Open the file in JupyterLab." in page.read_text(encoding="utf-8")
    assert "Restart the kernel" not in page.read_text(encoding="utf-8")


def test_a_notebook_replaced_while_it_is_graded_is_graded_again(counted, three, monkeypatch):
    folder, out = three
    grade_all = run.pool.grade_all

    def replacing(submissions, plan, jobs):
        for submission, result in grade_all(submissions, plan, jobs):
            if submission.student == "ada":
                submission.path.write_text("{   }")
            yield submission, result

    monkeypatch.setattr(run.pool, "grade_all", replacing)
    grade(folder, out)
    counted.clear()
    grade(folder, out, resume=True)
    assert counted == ["ada"]


def test_grades_are_not_overwritten_by_accident(counted, three):
    folder, out = three
    grade(folder, out)
    with pytest.raises(ValueError, match="contains grades already. Use --resume"):
        grade(folder, out)


def test_what_cannot_be_used_is_told(three, tmp_path, monkeypatch):
    folder, out = three
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="got no submissions in"):
        grade(tmp_path / "empty", out)
    with pytest.raises(ValueError, match="the roster .* cannot be read"):
        grade(folder, out, roster=tmp_path / "nobody.csv")
    (tmp_path / "nobody.csv").write_text("\n\n")
    with pytest.raises(ValueError, match="the roster .* which is empty; expected one student id per line"):
        grade(folder, out, roster=tmp_path / "nobody.csv")
    monkeypatch.setattr(session, "unavailable", lambda: "bubblewrap is not installed")
    with pytest.raises(ValueError, match="bubblewrap is not installed"):
        grade(folder, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"canvas": " "}, "got an empty --canvas; expected what the grade is called there"),
        ({"moodle": ""}, "got an empty --moodle"),
        ({"canvas": "Final Score"}, "got the assignment 'Final Score'"),
        ({"known_by": "ID"}, "got --known-by 'ID' alone; expected --canvas or --moodle as well"),
    ],
)
def test_a_table_that_cannot_be_written_is_told_before_anything_is_graded(counted, three, asked, said):
    folder, out = three
    with pytest.raises(ValueError, match=said):
        grade(folder, out, **asked)
    assert not counted
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_graded(counted, three, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", Path("/proc/nowhere")):
        with pytest.raises(ValueError, match=r"got --out .* where nothing can be written \(.*\); expected a folder"):
            grade(three[0], out)
    assert not counted


def test_an_interrupt_keeps_what_is_finished(counted, three, monkeypatch):
    folder, out = three
    closed = []

    def interrupted(submissions, plan, jobs):
        try:
            yield submissions[0], engine.unreadable(submissions[0], plan, "made up")
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    with monkeypatch.context() as patched:
        patched.setattr(run.pool, "grade_all", interrupted)
        code, said = grade(folder, out)
    assert code == 130
    assert "1 of 3 grades are stored" in said
    assert closed
    assert not (out / "grades.csv").exists()
    grade(folder, out, resume=True)
    assert sorted(counted) == ["alan", "hedy"]


# Ends that a run can take ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Five students of lesson 00, and the grades of a run that nothing disturbed.

    Nobody draws: every answer that does takes a second, in each of three runs. Who talks is in the whole class.
    """
    folder = tmp_path_factory.mktemp("five")
    quiet = {name: kind for name, kind in KINDS.items() if name != "right, talking"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classroom, "KINDS", quiet)
        classroom.make(folder, "00", 5, 1)
    assert grade(folder / "submissions", folder / "out", "00", jobs=1)[0] == 0
    return folder / "submissions", folder / "out"


@pytest.fixture
def adopting():
    """Orphans become children of this process, so that none is overlooked."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = set(psutil.Process().children(recursive=True))
    yield lambda: [child for child in psutil.Process().children(recursive=True) if child not in before]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


def started(folder, out):
    """A process that grades, as soon as its first result is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(folder), str(out)], start_new_session=True, stdout=subprocess.DEVNULL
    )
    while not list(out.glob("results/*.json")):
        assert process.poll() is None
        time.sleep(0.05)
    return process


def is_sandboxed(processes):
    """Whether one of them is a sandbox; some may have ended since they were listed."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            if "bwrap" in each.name():
                return True
    return False


def kept(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}


@needs_sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="processes are told of their parent's end by Linux")
def test_a_run_that_is_killed_goes_on_and_ends_as_if_nothing_had_been(five, tmp_path, adopting):
    folder, undisturbed = five
    process = started(folder, tmp_path)
    process.kill()
    process.wait()
    assert psutil.wait_procs(adopting(), timeout=120)[1] == []
    finished = kept(tmp_path)
    assert 0 < len(finished) < 5
    assert not (tmp_path / "grades.csv").exists()
    assert grade(folder, tmp_path, "00", jobs=1, resume=True)[0] == 0
    assert kept(tmp_path) | finished == kept(tmp_path)
    mine, its = ([row["seconds"] for row in table(out)] for out in (tmp_path, undisturbed))
    assert len(mine) == len(its) == 5 * 6
    assert without_seconds(tmp_path) == without_seconds(undisturbed)


def without_seconds(out):
    """The bytes of grades.csv, the column of seconds made the same."""
    text = (out / "grades.csv").read_bytes().decode()
    lines = list(csv.reader(io.StringIO(text)))
    place = lines[0].index("seconds")
    written = io.StringIO()
    csv.writer(written).writerows([[*line[:place], "", *line[place + 1 :]] for line in lines])
    assert len(text.splitlines()) == len(written.getvalue().splitlines())
    return written.getvalue().encode()


@needs_sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
def test_an_interrupted_run_leaves_its_results_and_no_process(five, tmp_path, adopting):
    process = started(five[0], tmp_path)
    # A sandbox that is shared waits for the next job; of the others there may be none between two answers.
    while bubblewrap.variant()[0] == "shared" and not is_sandboxed(adopting()):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everyone in the group gets it
    assert process.wait() == 130
    assert psutil.wait_procs(adopting(), timeout=120)[1] == []
    assert 0 < len(kept(tmp_path)) < 5
    plan = engine.plan("00")
    for name in kept(tmp_path):
        student = Path(name).stem
        submission = Submission(student, "", five[0] / student / "00_start_here.ipynb")
        assert store.load(tmp_path, student, run._key(submission, plan)) is not None


# Seconds, and ends from outside ----------------------------------------------------------------------------------


def test_the_seconds_of_a_submission_reach_the_plan_and_nonsense_is_refused(counted, three, monkeypatch):
    plans, plan = [], engine.plan
    monkeypatch.setattr(engine, "plan", lambda *given, **named: plans.append(plan(*given, **named)) or plans[-1])
    folder, out = three
    grade(folder, out, seconds=900.0)
    assert (plans[-1].limits.submission_seconds, plans[-1].limits.seconds) == (900.0, 450.0)
    for seconds in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(ValueError, match=r"got --seconds .* expected from 1 to"):
            grade(folder, out.with_name("other"), seconds=seconds)


def test_more_seconds_grade_anew(counted, three):
    folder, out = three
    grade(folder, out)
    grade(folder, out, resume=True)
    assert len(counted) == 3
    grade(folder, out, resume=True, seconds=900.0)
    assert len(counted) == 6
