"""A Dask cluster on this machine: real workers, one of which is killed; and what is said when it cannot be used."""

import dataclasses
import gc
import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager

import dask
import distributed
import psutil
import pytest
from submitting import needs_sandbox
from synthetic import classroom

from course_lib.checking.call import limited
from course_lib.grading import engine
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import Result
from course_lib.grading.workers import cluster
from course_lib.lessons.wanda.exercises import EXERCISES

PLAN = engine.Plan("04 Wanda", "04_wanda", {"wanda.score": "wanda_score"}, "key", kind="none")


def submissions(folder, n):
    made = [Submission(f"s{i}", f"s{i}.ipynb", folder / f"s{i}.ipynb") for i in range(n)]
    for each in made:
        each.path.write_text(f"notebook of {each.student}")
    return made


def graded(submission, content, plan, course):
    """A stand-in that says which process it was, and what that was sent."""
    time.sleep(0.1)
    return Result(submission.student, plan.lesson, submission.origin, 0, (), notes=(str(os.getpid()), content.decode()))


def ends_the_worker_at_s1(submission, content, plan, course):
    if submission.student == "s1":
        os.kill(os.getpid(), signal.SIGKILL)
    return graded(submission, content, plan, course)


def is_lost_at_s1_beside_others(submission, content, plan, course):
    """Leaves a mark for every try, and one while it grades; s1 is ended from outside unless it is alone, and first."""
    mark, tries = submission.path.with_suffix(".running"), submission.path.with_suffix(".tries")
    mark.touch()
    n_before = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (n_before + 1))
    time.sleep(0.3)
    beside = len(list(submission.path.parent.glob("*.running"))) > 1
    mark.unlink()
    lost = submission.student == "s1" and (beside or not n_before)
    problem = f"{engine.LOST} wanda.score." if lost else ""
    return dataclasses.replace(graded(submission, content, plan, course), problem=problem, grader_failed=lost)


def is_always_lost_at_s1(submission, content, plan, course):
    result = is_lost_at_s1_beside_others(submission, content, plan, course)
    problem = f"{engine.LOST} wanda.score." if submission.student == "s1" else ""
    return dataclasses.replace(result, problem=problem, grader_failed=bool(problem))


def cannot_grade(submission, content, plan, course):
    raise RuntimeError("this worker joined late and has another version of the course")


def lacks_bubblewrap(kind, course):
    return "bubblewrap is not installed" if kind == "bwrap" else ""


@pytest.fixture(scope="module")
def forked():
    """Workers are forks of a process that has imported the course once: nine start here, at ten seconds each."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "course_lib.grading.workers.cluster"])
        yield


@contextmanager
def two_workers():
    """Two workers, each a process with one thread; one that dies is replaced, and a submission may kill one."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def clusters(forked):
    """Those of this file, which end together; the last one is in use."""
    with ExitStack() as stack:
        yield stack, []


@pytest.fixture
def local(clusters):
    """One with both of its workers, also after a test that has killed some; a new one where they stay away."""
    stack, begun = clusters
    if not begun or not both_are_there(begun[-1]):
        begun.append(stack.enter_context(two_workers()))
    with limited(300.0):  # a cluster that loses both for good waits for ever
        yield begun[-1]


def both_are_there(cluster):
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        try:
            client.wait_for_workers(2, timeout=60)
        except TimeoutError:
            return False
    return True


def run(local, submissions, plan=PLAN):
    return cluster.grade_all(submissions, plan, local.scheduler_address)


def test_a_worker_killed_in_mid_run_costs_nobody_a_row(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", graded)
    sent = submissions(tmp_path, 12)
    found = run(local, sent)
    pairs = [next(found) for _ in range(3)]
    psutil.Process(int(pairs[0][1].notes[0])).kill()
    pairs += found
    assert sorted(submission.student for submission, _ in pairs) == sorted(each.student for each in sent)
    for submission, result in pairs:
        assert result.student == submission.student
        assert result.notes[1] == f"notebook of {submission.student}"


def test_one_that_kills_its_workers_has_rows_that_say_so_and_nobody_beside_it(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", ends_the_worker_at_s1)
    pairs = list(run(local, submissions(tmp_path, 4)))
    assert sorted(submission.student for submission, _ in pairs) == ["s0", "s1", "s2", "s3"]
    problems = {result.student: result.problem for _, result in pairs}
    assert "ended several workers" in problems.pop("s1")
    assert set(problems.values()) == {""}
    assert len(next(result.exercises for _, result in pairs if result.student == "s1")) == len(EXERCISES)


def tries_of(sent):
    return {each.student: len(each.path.with_suffix(".tries").read_text()) for each in sent}


def test_one_whose_sandbox_was_ended_from_outside_is_tried_once_more_alone(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", is_lost_at_s1_beside_others)
    sent = submissions(tmp_path, 5)
    pairs = list(run(local, sent))
    assert sorted(submission.student for submission, _ in pairs) == [each.student for each in sent]
    assert pairs[-1][0].student == "s1", "when nothing else is left"
    assert {result.problem for _, result in pairs} == {""}
    assert tries_of(sent) == {"s0": 1, "s1": 2, "s2": 1, "s3": 1, "s4": 1}


def test_one_that_is_lost_twice_is_not_tried_a_third_time(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", is_always_lost_at_s1)
    sent = submissions(tmp_path, 3)
    pairs = list(run(local, sent))
    assert [submission.student for submission, _ in pairs][-1] == "s1"
    assert [engine.was_lost(result) for _, result in pairs] == [False, False, True]
    assert pairs[-1][1].problem.startswith(engine.FAILED), "the command fails, and --resume grades it anew"
    assert tries_of(sent) == {"s0": 1, "s1": 2, "s2": 1}


def test_few_notebooks_are_read_ahead_and_what_cannot_be_read_is_not_sent(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", graded)
    sent, read = submissions(tmp_path, 10), []
    sent[4].path.unlink()
    original = cluster._read
    monkeypatch.setattr(cluster, "_read", lambda submission: read.append(submission) or original(submission))
    n_done = 0
    for submission, result in run(local, sent):
        assert len(read) - n_done <= 2 * cluster.AHEAD
        assert ("No such file" in result.problem) == (submission is sent[4])
        n_done += 1
    assert n_done == 10


def test_closing_takes_back_what_was_sent(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", graded)
    found = run(local, submissions(tmp_path, 8))
    next(found)
    found.close()
    give_up = time.monotonic() + 60
    while local.scheduler.tasks and time.monotonic() < give_up:
        time.sleep(0.1)  # the scheduler forgets them a moment later
    assert not local.scheduler.tasks


@needs_sandbox
def test_real_submissions_get_what_they_deserve(local, tmp_path):
    truths = classroom.make(tmp_path, "00", 2, 0)
    folder = tmp_path / "submissions"
    sent = [Submission(each.student, each.student, folder / each.student / "00_start_here.ipynb") for each in truths]
    results = [result for _, result in run(local, sent, engine.plan("00"))]
    assert classroom.differences(truths, results) == []


def test_workers_that_cannot_grade_are_named_before_anything_is_sent(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_read", None)  # would fail
    sent = submissions(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "fingerprint", lambda: "of another version")
        with pytest.raises(ValueError, match=r"2 of 2 workers cannot grade. tcp://.*another version of the course"):
            list(run(local, sent))
    monkeypatch.setattr(cluster, "unfit", lacks_bubblewrap)
    with pytest.raises(ValueError, match="bubblewrap is not installed"):
        list(run(local, sent, dataclasses.replace(PLAN, kind="bwrap")))


def dies_at_first(kind, course):
    """The worker that is asked first ends before it answers; `course` is a folder for its mark."""
    try:
        os.mkdir(os.path.join(course, "asked"))
    except FileExistsError:
        return ""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_over_the_first_question_costs_time_and_nothing_else(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", graded)
    monkeypatch.setattr(cluster, "unfit", dies_at_first)
    monkeypatch.setattr(cluster, "fingerprint", lambda: str(tmp_path))
    pairs = list(run(local, submissions(tmp_path, 3)))
    assert (tmp_path / "asked").exists()
    assert sorted(submission.student for submission, _ in pairs) == ["s0", "s1", "s2"]
    assert {result.problem for _, result in pairs} == {""}


def test_workers_that_die_whenever_they_are_asked_are_named():
    """Without a cluster, whose workers would each take seconds to start again."""
    asked = []

    class Client:
        def wait_for_workers(self, n, timeout):
            pass

        def run(self, function, *arguments, on_error):
            asked.append(function)
            return {"tcp://here:1": "", f"tcp://here:{len(asked) + 1}": OSError("the connection is closed")}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster, "PAUSE_SECONDS", 0.0)
        with pytest.raises(ValueError, match=r"1 of 2 workers cannot grade. tcp://here:6: .*does not start \(OSError"):
            cluster._check_workers(Client(), PLAN)
    assert len(asked) == cluster.MOST_DEATHS


def test_a_worker_that_joins_late_and_cannot_grade_stops_the_run(local, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "grade", cannot_grade)
    with pytest.raises(ValueError, match=r"gave s0 back ungraded \(this worker joined late.*--resume"):
        list(run(local, submissions(tmp_path, 1)))


def test_a_process_knows_whether_it_can_grade(monkeypatch):
    cluster.unfit.cache_clear()
    monkeypatch.setattr(cluster.session, "unavailable", lambda: "no bubblewrap")
    assert "another version" in cluster.unfit("bwrap", "something else")
    assert cluster.unfit("bwrap", cluster.fingerprint()) == "no bubblewrap"
    assert cluster.unfit("none", cluster.fingerprint()) == ""
    with pytest.raises(RuntimeError, match="another version"):
        cluster.grade(Submission("s", "s"), b"", PLAN, "something else")
    cluster.unfit.cache_clear()


def test_the_fingerprint_follows_code_and_the_texts_of_mistakes(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "COURSE", tmp_path)
    (tmp_path / "lessons").mkdir()
    found = [cluster.fingerprint.__wrapped__()]
    for name in ("score.py", "score.md"):
        (tmp_path / "lessons" / name).write_text("text")
        found.append(cluster.fingerprint.__wrapped__())
    assert len(set(found)) == 3


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "nowhere"):
        with pytest.raises(ValueError, match=f"no Dask scheduler answers at '{address}' .*tcp://host:8786"):
            list(cluster.grade_all([], PLAN, address))
        left = [each for each in gc.get_objects() if type(each) is distributed.Client and each.status != "closed"]
        assert not left, "closes when it is collected, which may be while another one starts, and then waits for ever"


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 0.1)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None, silence_logs=50) as empty,
        pytest.raises(ValueError, match="no workers after 0.1 seconds; start some"),
    ):
        list(run(empty, []))


def test_without_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install \"sparsity-workbook\[cluster\]\""):
        list(cluster.grade_all([], PLAN, "tcp://127.0.0.1:9"))
