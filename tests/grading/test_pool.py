"""Processes that grade, with stand-ins for the grading: whatever becomes of a process, everyone gets rows once."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from course_lib.grading import engine
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import Result
from course_lib.grading.workers import pool
from course_lib.lessons.wanda.exercises import EXERCISES

PLAN = engine.Plan("04 Wanda", "04_wanda", {"wanda.score": "wanda_score"}, "key")


def submissions(folder, n):
    return [Submission(f"s{i}", f"s{i}.ipynb", folder / f"s{i}.ipynb") for i in range(n)]


def graded(submission, plan):
    """Says which process did it."""
    return Result(submission.student, plan.lesson, submission.origin, 0, (), notes=(str(os.getpid()),))


def kills_its_process_at_s1(submission, plan):
    if submission.student == "s1":
        os.kill(os.getpid(), signal.SIGKILL)
    return graded(submission, plan)


def kills_its_process_at_s1_once(submission, plan):
    mark = submission.path.with_suffix(".seen")
    if submission.student == "s1" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return graded(submission, plan)


def is_lost_at_s1_beside_others(submission, plan):
    """Leaves a mark while it grades; s1 needs the machine for itself."""
    mark = submission.path.with_suffix(".running")
    mark.touch()
    time.sleep(0.3)
    beside = len(list(submission.path.parent.glob("*.running"))) > 1
    first = submission.student == "s1" and not submission.path.with_suffix(".seen").exists()
    submission.path.with_suffix(".seen").touch()
    mark.unlink()
    problem = f"{engine.LOST} wanda.score." if first or (beside and submission.student == "s1") else ""
    return dataclasses.replace(graded(submission, plan), problem=problem, grader_failed=bool(problem))


def is_always_lost_at_s1(submission, plan):
    submission.path.with_suffix(f".{time.time_ns()}").touch()
    problem = f"{engine.LOST} wanda.score." if submission.student == "s1" else ""
    return dataclasses.replace(graded(submission, plan), problem=problem, grader_failed=bool(problem))


def fails_at_s1(submission, plan):
    if submission.student == "s1":
        raise RuntimeError("a defect")
    return graded(submission, plan)


def notes_the_process_and_waits(submission, plan):
    submission.path.write_text(str(os.getpid()))
    time.sleep(600)


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Workers are forks of a process that has imported torch once; the last test starts them as `course grade` does."""
    if sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([pool.__name__, "test_pool"])
        monkeypatch.setattr(pool, "_CONTEXT", context)


def run(folder, grade, n, jobs=2):
    return list(pool.grade_all(submissions(folder, n), PLAN, jobs, grade))


def test_everyone_has_one_result_and_a_defect_of_the_grader_is_told_in_the_rows(tmp_path):
    assert run(tmp_path, graded, 0) == []
    pairs = run(tmp_path, fails_at_s1, 5)
    assert sorted(submission.student for submission, _ in pairs) == [f"s{i}" for i in range(5)]
    assert all(submission.student == result.student for submission, result in pairs)
    problems = {result.student: result.problem for _, result in pairs}
    assert problems.pop("s1") == "The grader failed: RuntimeError: a defect"
    assert set(problems.values()) == {""}
    assert len({result.notes for _, result in pairs if not result.problem}) <= 2


def test_a_submission_that_always_ends_its_process_has_rows_that_say_so(tmp_path):
    pairs = run(tmp_path, kills_its_process_at_s1, 3, jobs=1)
    assert [submission.student for submission, _ in pairs] == ["s0", "s2", "s1"], "the others first"
    problems = {result.student: result.problem for _, result in pairs}
    assert problems["s1"].startswith(engine.FAILED), "the command fails, and --resume grades it anew"
    assert "ended a process of the grader, twice" in problems.pop("s1")
    assert set(problems.values()) == {""}
    rows = next(result.exercises for submission, result in pairs if submission.student == "s1")
    assert len(rows) == len(EXERCISES)
    assert {row.state for row in rows} == {"no submission"}


def test_a_process_that_is_killed_once_costs_nobody_anything(tmp_path):
    pairs = run(tmp_path, kills_its_process_at_s1_once, 2, jobs=1)
    assert [submission.student for submission, _ in pairs] == ["s0", "s1"]
    assert all(result.problem == "" for _, result in pairs)


def test_a_submission_whose_sandbox_was_ended_from_outside_is_tried_once_more_alone(tmp_path):
    pairs = run(tmp_path, is_lost_at_s1_beside_others, 5, jobs=3)
    assert [submission.student for submission, _ in pairs][-1] == "s1"
    assert {result.problem for _, result in pairs} == {""}


def test_one_that_is_lost_twice_is_the_graders_failure(tmp_path):
    pairs = run(tmp_path, is_always_lost_at_s1, 3)
    assert [submission.student for submission, _ in pairs][-1] == "s1"
    assert len(list(tmp_path.glob("s1.*"))) == 2
    assert [result.problem.startswith(engine.FAILED) for _, result in pairs] == [False, False, True]


def test_a_process_that_dies_between_two_submissions_costs_nobody_anything(tmp_path):
    found = pool.grade_all(submissions(tmp_path, 3), PLAN, 1, graded)
    _, result = next(found)
    process = psutil.Process(int(result.notes[0]))
    process.kill()
    process.wait(30)
    assert [result.problem for _, result in found] == ["", ""]


def processes_in(folder):
    return {int(text) for path in folder.glob("*.ipynb") if (text := path.read_text())}


def test_closing_ends_the_processes(tmp_path):
    found = pool.grade_all(submissions(tmp_path, 2), PLAN, 1, graded)
    process = psutil.Process(int(next(found)[1].notes[0]))
    found.close()
    assert not process.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes learn of it at their next submission")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    text = (
        "from pathlib import Path\n"
        "import test_pool\n"
        "if __name__ == '__main__':\n"
        "    test_pool.run(Path.cwd(), test_pool.notes_the_process_and_waits, 2, 2)\n"
    )
    (tmp_path / "main.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path, env=environment)
    while len(processes_in(tmp_path)) < 2:
        time.sleep(0.1)
        assert parent.poll() is None
    workers = [psutil.Process(number) for number in processes_in(tmp_path)]
    parent.kill()
    parent.wait()
    assert psutil.wait_procs(workers, timeout=60)[1] == []
