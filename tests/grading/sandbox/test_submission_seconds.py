"""Seconds of a submission: what each exercise takes is counted, and there is an end to all of them together."""

import os
import signal
import threading
from dataclasses import replace

import psutil
import pytest
import torch
from submitting import RIGHT, SMALL, ask, n_right, needs_sandbox, notebook
from test_sandbox import WAITING, eventually, waiting

from course_lib.grading.records import Limits
from course_lib.grading.sandbox import child, frames, rounds, session, started, supervise
from course_lib.grading.sandbox import limits as watch

TAKES = """
import time

def slow(x):
    end = time.thread_time() + {seconds}
    while time.thread_time() < end:
        pass
    return x * 2
"""
SPINS = "def {name}(x):\n    return sum(range(10**15))  # one instruction to Python: no alarm rings in it"


def run(*cells: str, names: list[str], limits: Limits):
    return session.run(notebook(*cells, RIGHT), [ask(f"x.{n}", name) for n, name in enumerate(names)], limits)


@needs_sandbox
def test_all_exercises_of_a_submission_share_its_seconds():
    limits = replace(SMALL, seconds=1.5, submission_seconds=2.0)
    first, second, third = run(SPINS.format(name="spins"), names=["spins", "spins", "right"], limits=limits)
    assert [answer.status for answer in (first, second, third)] == ["killed"] * 3
    assert "stopped after 1.5 seconds of calculating" in first.reason
    assert "2 seconds for all exercises together" in second.reason
    assert "2 seconds for all exercises together" in third.reason
    assert 1.5 <= first.seconds < 2.0 < first.seconds + second.seconds < 3.0 > third.seconds
    assert not any(answer.lost for answer in (first, second, third))


@needs_sandbox
def test_what_an_earlier_sandbox_took_counts_as_well(monkeypatch):
    """Each exercise ends its sandbox here, as one that cannot be cleaned up does."""
    answers = session._Session.answers
    monkeypatch.setattr(session._Session, "answers", lambda attended: answers(attended)[:1])
    limits = replace(SMALL, seconds=1.5, submission_seconds=2.0)
    *_, last = run(SPINS.format(name="spins"), names=["spins", "spins", "right"], limits=limits)
    assert "2 seconds for all exercises together" in last.reason


@needs_sandbox
def test_a_loop_inside_one_instruction_costs_the_time_of_a_call_and_not_that_of_the_exercise():
    limits = replace(SMALL, seconds=60.0, call_seconds=0.5)
    stopped, right = run(SPINS.format(name="spins"), names=["spins", "right"], limits=limits)
    assert "calculated for more than 0.5 seconds" in stopped.reason
    assert stopped.seconds < 10
    assert n_right(right) == 2


@needs_sandbox
def test_after_the_second_statement_that_does_not_end_the_rest_of_an_exercise_is_not_run():
    cells = [f"A{n} = [0 for _ in iter(int, 1)]" for n in range(6)]
    cells.append(f"def stuck(x):\n    return {' + '.join(f'A{n}' for n in range(6))}")
    limits = replace(SMALL, call_seconds=0.5)
    stuck, right = run(*cells, names=["stuck", "right"], limits=limits)
    assert stuck.status == "not loaded"
    assert stuck.reason.count("did not finish within 0.5 seconds") == 2
    assert stuck.seconds < 3.0
    assert n_right(right) == 2


@needs_sandbox
def test_one_statement_that_does_not_end_stops_only_itself():
    cells = ["A = [0 for _ in iter(int, 1)]", "B = 2\ndef needs(x):\n    A\n    return x * B"]
    (answer,) = run(*cells, names=["needs"], limits=replace(SMALL, call_seconds=0.5))
    assert answer.status == "ran"
    assert "NameError" in answer.outcomes[0].error
    assert any("did not finish" in note for note in answer.notes)


@needs_sandbox
def test_a_notebook_is_read_once_however_long_that_takes():
    """20,000 lines; were they read for every exercise anew, each would take as long as the first."""
    long = ["a=1\n" * 2000] * 10
    answers = run(*long, names=["right"] * 8, limits=replace(SMALL, seconds=300.0, submission_seconds=600.0))
    assert [n_right(answer) for answer in answers] == [2] * 8
    first, *others = [answer.seconds for answer in answers]
    assert sum(others) < first
    answers = run(*long, names=["right"] * 8, limits=replace(SMALL, seconds=0.5))
    assert {answer.status for answer in answers} == {"killed"}
    assert {answer.reason for answer in answers} == {
        "The notebook was not read to its end: that took more than 0.25 seconds."
    }
    assert sum(answer.seconds for answer in answers) < 2.0


@pytest.mark.parametrize(
    ("loaded", "how", "n_read"), [(False, "memory", 1), (False, "signal", 1), (True, "memory", 4), (False, "killed", 4)]
)
def test_what_breaks_the_reader_over_the_cells_is_not_tried_for_every_exercise(loaded, how, n_read, monkeypatch):
    """Over one exercise it is: the others may be read. Whoever is ended from outside is tried again, too."""
    rounds = []

    def one_round(self, kinds, n_messages, take, seconds, act):
        rounds.append(kinds)
        if loaded:
            take(frames.LOADED, 0, b"")
        return supervise.End(how, 0, 1.0, True)

    monkeypatch.setattr(supervise.Job, "_round", one_round)
    job = supervise.Job(-1, -1, b"", [ask(f"x.{n}", "right") for n in range(4)], SMALL, set(), 0.0)
    ended = [job.run(index, torch.empty(0)) for index in range(4)]
    assert [how_ended for (how_ended, _, _), _ in ended] == [f"reading: {how}"] * 4
    assert rounds == [frames.FROM_READER] * n_read


@needs_sandbox
def test_all_calls_together_have_a_limit_as_in_check():
    (answer,) = run(TAKES.format(seconds=0.4), names=["slow"], limits=replace(SMALL, calls_seconds=0.5))
    assert n_right(answer) == 1
    assert "all cases together have 0.5 seconds" in answer.outcomes[1].error


@needs_sandbox
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are bound to one processor")
def test_what_else_the_machine_does_decides_about_nobody():
    """Nine others on the same processor, and limits of three times what the answer calculates."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        others = [psutil.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(9)]
        limits = replace(SMALL, seconds=3.0, call_seconds=1.5, calls_seconds=3.0, submission_seconds=6.0)
        started.close()  # the next sandbox is bound too
        (answer,) = run(TAKES.format(seconds=0.5), names=["slow"], limits=limits)
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.wait()
        started.close()
    assert (answer.status, n_right(answer)) == ("ran", 2), answer.reason


@pytest.mark.parametrize(
    ("number", "calculated", "granted", "allowed", "how"),
    [
        (signal.SIGKILL, 3.0, 182, 182, "killed"),  # by a machine that is short of memory
        (signal.SIGKILL, 108.8, 182, 182, "killed"),
        (signal.SIGKILL, 120.0, 182, 182, "time"),
        (signal.SIGKILL, 155.0, 182, 182, "time"),  # by the kernel: earlier than at 182 on a busy machine
        (signal.SIGKILL, 87.0, 100, 100, "time"),  # the same where the grader itself may have no more than 100
        (signal.SIGKILL, 70.0, 100, 100, "killed"),
        (signal.SIGKILL, 0.0, 182, 0, "time"),  # it has lowered its own limit
        (signal.SIGKILL, 0.6, 182, 1, "time"),
        (signal.SIGXCPU, 20.0, 182, 182, "signal"),
        (signal.SIGXCPU, 120.0, 182, 182, "time"),
        (signal.SIGSEGV, 130.0, 182, 182, "signal"),
    ],
)
def test_a_loop_that_the_kernel_ends_is_out_of_time_and_not_lost(number, calculated, granted, allowed, how):
    assert rounds.by_signal(number, calculated, 120.0, float(granted), float(allowed)) == how


@pytest.mark.parametrize("seconds", [0.5, 1.0, 10.0, 120.0])
def test_the_warden_comes_before_a_kernel_that_kills_early(seconds):
    """One was seen to kill at 0.87 of the limit."""
    assert rounds.EARLY * child.most_of_processor(replace(SMALL, seconds=seconds)) > seconds


def test_a_name_that_is_no_text_hides_no_process(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(b"7 () \xff\xfe\n1 (\xc3)) R 1 1 7 0")
    assert watch.others(7, tmp_path) == [["7", "R", "1", "1", "7", "0"]]


def test_what_one_exercise_may_send_fits_in_what_is_taken_of_all():
    """Else the last exercises of a submission that says much would end the sandbox, and look like a failure of it."""
    tasks = [replace(ask(f"x.{n}", "right"), hidden=((torch.ones(1),),) * 3) for n in range(30)]
    reader = session._Session(b"", tasks, SMALL).reader
    one = frames.most_bytes(SMALL.result_bytes)
    assert reader.n_bytes >= one + len(tasks) * (one + 1000), "the notebook is read once for all of them"
    assert reader.n_messages >= len(tasks) * (2 + 3 + 100 + 4)


@needs_sandbox
def test_a_process_that_is_killed_from_outside_is_lost_and_the_others_are_not():
    answers, tasks = [], [ask("x.1", "right"), ask("x.waits", "waits"), ask("x.2", "right")]
    limits = replace(SMALL, seconds=600.0)
    thread = threading.Thread(target=lambda: answers.extend(session.run(notebook(WAITING), tasks, limits)))
    thread.start()
    assert eventually(lambda: waiting(psutil.Process()), 300)
    waiting(psutil.Process()).send_signal(signal.SIGKILL)
    thread.join()
    assert [(answer.status, answer.lost) for answer in answers] == [("ran", False), ("killed", True), ("ran", False)]
    assert "killed from outside" in answers[1].reason
