"""The walls of the sandbox one by one: the filter of system calls, the watch over processes, the reading of claims."""

import math
import os
import subprocess
import sys
import time

import pytest
import torch
from submitting import CASES, SMALL, ask

from course_lib.checking import call
from course_lib.checking.call import Outcome
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import claims, frames, seccomp, supervise, wire
from course_lib.grading.sandbox import limits as watch
from course_lib.grading.sandbox import session as sandbox

# The filter of system calls ---------------------------------------------------------------------------------------


def verdict(machine: str, number: int, argument: int = 0, audit: int | None = None) -> str:
    """What the kernel would make of a call: its filter, step by step."""
    steps, at, value = seccomp.program(machine), 0, 0
    facts = {0: number, 4: seccomp._MACHINES[machine][0] if audit is None else audit, 16: argument}
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            value = facts[operand]
        elif code == 0x06:
            return {0x7FFF0000: "allow", 0x80000000: "kill"}.get(operand, f"error {operand & 0xFFFF}")
        else:
            test = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += yes if test else no


@pytest.mark.parametrize(
    ("machine", "calls"),
    [
        ("x86_64", {"read": 0, "write": 1, "exit": 60, "mmap": 9, "clone": 56, "fork": 57, "execve": 59, "clone3": 435,
                    "socket": 41, "prlimit": 302, "memfd_create": 319, "futex": 202}),
        ("aarch64", {"read": 63, "write": 64, "exit": 93, "mmap": 222, "clone": 220, "execve": 221, "clone3": 435,
                     "socket": 198, "prlimit": 261, "memfd_create": 279, "futex": 98}),
    ],
)  # fmt: skip
def test_the_filter_lets_calculations_through_and_nothing_else_out(machine, calls):
    assert {verdict(machine, calls[name]) for name in ("read", "write", "exit", "mmap", "futex")} == {"allow"}
    refused = [calls[name] for name in ("fork", "execve", "memfd_create") if name in calls]
    assert {verdict(machine, number) for number in refused} == {"error 1"}
    assert verdict(machine, calls["clone3"]) == "error 38"
    assert verdict(machine, calls["clone"], 0x3D0F00) == "allow"  # as glibc starts a thread
    assert verdict(machine, calls["clone"], 0x1200011) == "error 1"  # as glibc forks
    assert verdict(machine, calls["clone"], 0x3D0B00) == "error 1"  # a thread with open files of its own
    assert verdict(machine, calls["clone"], 0x400) == "error 1"
    assert [verdict(machine, calls["prlimit"], process) for process in (0, 1)] == ["allow", "error 1"]
    families = {family: verdict(machine, calls["socket"], family) for family in range(46)}
    assert {family for family, said in families.items() if said == "allow"} == {1}
    assert verdict(machine, 0x40000000 + calls["read"]) == "error 1"
    assert verdict(machine, calls["read"], audit=0x40000003) == "kill"


def test_where_the_numbers_are_not_known_there_is_no_filter(monkeypatch):
    assert seccomp.program("riscv64") == []
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    assert seccomp.forbid() is False


# Watching ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def session():
    """A process of its own session with three threads that wait."""
    text = "import threading as t, time; [t.Thread(target=time.sleep, args=(1000,)).start() for _ in 'ab']; print(1)"
    process = subprocess.Popen([sys.executable, "-u", "-c", text], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"1\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed")
def test_threads_and_memory_of_a_session_are_counted(session):
    assert watch.broken(session, Limits(processes=3)) == ""
    assert watch.broken(session, Limits(processes=2)) == "processes"
    assert watch.broken(session, Limits(memory_bytes=2**19)) == "memory"
    assert watch.broken(session, Limits(memory_bytes=2**30)) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed")
def test_memory_shared_with_others_counts_in_part_and_that_of_who_hides_in_full(session, monkeypatch):
    (fields,) = watch.others(session)
    resident = int(fields[22]) * os.sysconf("SC_PAGESIZE")
    assert 0 < watch._proportional(fields[0], 0) < resident
    assert watch._proportional("0", 17) == 17


def test_a_clock_that_nobody_looked_at_adds_a_second_at_most(monkeypatch):
    now = iter([100.0, 100.5, 500.0, 500.25])
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(now))
    clock = watch.Stopwatch()
    assert [clock.tick() for _ in range(4)] == [0.0, 0.5, 1.5, 1.75]


BUSY = 7_000_000_000  # nanoseconds, as the kernel counts them


def test_seconds_without_a_processor_are_read_where_the_kernel_tells_them(tmp_path):
    for name, text in (("told", f"123 {BUSY} 4\n"), ("strange", "many\n"), ("empty", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    assert [call.starved(name, tmp_path) for name in ("told", "strange", "empty", "missing")] == [7.0, 0.0, 0.0, 0.0]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed")
def test_the_process_of_an_exercise_is_told_from_those_that_it_started(session, monkeypatch):
    monkeypatch.setattr(call, "starved", lambda process: {str(session): 7.0}.get(process, 0.0))
    assert watch.starved(session) == 7.0
    assert watch.starved(os.getpid()) == 0.0


class Clock:
    """Three seconds later whenever somebody looks, of which a process had no processor for `busy`."""

    def __init__(self, busy: float):
        self.now, self.busy, self.looks = 0.0, busy, 0

    def tick(self) -> float:
        self.now, self.looks = self.now + 3.0, self.looks + 1
        return self.now

    def starved(self, _: int) -> float:
        return self.busy * self.looks


@pytest.mark.parametrize(("busy", "looks"), [(0.0, 4), (1.5, 7), (3.0, 34)])
def test_an_exercise_is_not_stopped_for_the_time_in_which_a_busy_machine_did_not_run_it(monkeypatch, busy, looks):
    """10 seconds: after 12 on a machine of its own; 21 where half of them are taken; and 100 in any case."""
    clock, (pipe, _) = Clock(busy), os.pipe()
    monkeypatch.setattr(watch, "starved", clock.starved)
    monkeypatch.setattr(watch, "broken", lambda *_: "")
    attended = supervise._Round(0, 1, pipe, 0, Task("x.1", "right", CASES), Limits(seconds=10.0), 99)
    attended.clock = clock
    while not attended._broken():
        pass
    assert clock.looks == looks


@pytest.mark.parametrize(("busy", "least"), [(0.0, 0.0), (0.3, 0.3), (math.inf, 1.0)])
def test_a_call_is_not_stopped_for_the_time_in_which_a_busy_machine_did_not_run_it(monkeypatch, busy, least):
    begun, told = time.monotonic(), iter([0.0])
    monkeypatch.setattr(call, "starved", lambda: next(told, busy))
    monkeypatch.setattr(call.signal, "setitimer", quick(call.signal.setitimer))
    with pytest.raises(call.DidNotFinish), call.limited(0.1):
        never_end()
    assert time.monotonic() - begun >= least


def never_end():
    while True:
        pass


def quick(setitimer):
    """Alarms that ring again after a hundredth of a second."""
    return lambda which, seconds, again=0.0: setitimer(which, seconds, again and 0.01)


def test_only_the_first_process_of_a_namespace_kills_all_others(session, monkeypatch):
    killed = []
    monkeypatch.setattr(watch.os, "kill", lambda process, number: killed.append(process))
    monkeypatch.setattr(watch.os, "killpg", lambda process, number: killed.append(process))
    monkeypatch.setattr(watch.os, "waitpid", lambda *_: (0, 0))
    assert watch.rest_is_gone(session, set()) is True
    assert killed == [session, session]


def test_the_job_ends_with_its_giver():
    here, there = os.pipe()
    os.write(there, b"\0\0")
    os.close(there)
    with pytest.raises(SystemExit):
        supervise.serve(here, 1)
    os.close(here)


# What is claimed ----------------------------------------------------------------------------------------------------


def claim(*messages: tuple[bytes, object], how: str = "done", number: int = 0):
    collected = claims.Claims(Task("x.1", "right", CASES), SMALL)
    for kind, value in messages:
        collected.take(kind, value if isinstance(value, bytes) else wire.dumps(value, wire.Bounds()))
    return collected.answer(how, number, 1.5)


PROGRAM = (frames.PROGRAM, (("a note",), "code", ("course_lib.x",), True))
CASE = (frames.CASE, (1.5, None, False, False, ""))


def test_claims_become_an_answer():
    answer = claim(PROGRAM, (frames.NOTE, "another"), (frames.TOUCHED, "/x"), CASE, CASE, (frames.DONE, None))
    assert (answer.status, answer.outcomes, answer.seconds) == ("ran", (Outcome(1.5), Outcome(1.5)), 1.5)
    assert (answer.notes, answer.touched, answer.code) == (("a note", "another"), ("/x",), "code")
    assert (answer.uses, answer.only_calls) == (("course_lib.x",), True)


@pytest.mark.parametrize(
    "messages",
    [
        [CASE],
        [PROGRAM, CASE, CASE, CASE],
        [PROGRAM, PROGRAM],
        [PROGRAM, (frames.CASE, (1,))],
        [PROGRAM, (frames.CASE, (1, 2, False, False, ""))],
        [PROGRAM, (frames.CASE, (1, None, False, False, None))],
        [PROGRAM, (frames.CASE, torch.ones(5))],
        [PROGRAM, (frames.CASE, b"garbage")],
        [(frames.PROGRAM, (("note",), 3, (), True))],
        [(frames.PROGRAM, ((3,), "", (), True))],
        [(frames.PROGRAM, 3)],
        [(frames.NOTE, 3)],
        [(frames.TOUCHED, ("x",))],
        [(frames.UNUSABLE, ("ran", "well"))],
        [(frames.UNUSABLE, ("not found",))],
        [(frames.UNUSABLE, torch.ones(2))],
    ],
)
def test_what_does_not_belong_there_spoils_the_answer_from_there_on(messages):
    answer = claim(*messages, CASE, (frames.DONE, None))
    assert answer.status == "killed"
    assert "could not be read" in answer.reason
    assert len(answer.outcomes) == sum(message is CASE for message in messages[1:3])


def test_an_error_is_never_a_value_and_everything_is_cut():
    answer = claim(
        PROGRAM,
        (frames.CASE, (2.0, "", 1, "yes", "x" * 200_000)),
        *[(frames.NOTE, "n" * 10_000)] * 50,
        (frames.UNUSABLE, ("not loaded", "r" * 10_000)),
    )
    assert answer.status == "not loaded"
    (outcome,) = answer.outcomes
    assert (outcome.value, outcome.unattempted, outcome.endless) == (None, False, False)
    assert outcome.error
    assert len(outcome.trace) == 5 * claims.TEXT
    assert len(answer.notes) == claims.MOST
    assert {len(answer.reason), len(answer.notes[1])} == {claims.TEXT}


@pytest.mark.parametrize(
    ("how", "number", "said"),
    [
        ("time", 0, "after 30 seconds"), ("memory", 0, "768 MiB"), ("processes", 0, "24 threads"),
        ("files", 0, "files"),
        ("channel", 0, "4 MiB"), ("exit", 3, "exit code 3"), ("signal", 11, "signal 11"), ("signal", 24, "every loop"),
        ("signal", 9, "a program can do so to itself"), ("signal", 31, "a system call"),
        ("signal", 15, "Signal 15 ended"),
        ("silence", 0, "30 seconds"), ("warden", 0, "not known"),
        ("invented", 0, "not known"),
    ],
)  # fmt: skip
def test_every_end_has_its_sentence(how, number, said):
    answer = claim(PROGRAM, CASE, how=how, number=number)
    assert answer.status == "killed"
    assert said in answer.reason
    assert len(answer.outcomes) == 1  # what was finished before counts


def test_an_empty_notebook_is_handed_in_like_any_other():
    session = sandbox._Session(b"", [ask("x.1", "right")], SMALL)
    content, tasks, limits = wire.loads(bytes(session.job[8:]), wire.JOB)
    assert content.numel() == 0
    assert Task(*tasks[0]).exercise == "x.1"
    assert Limits(*limits) == SMALL
