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
from course_lib.grading.sandbox import claims, frames, rounds, seccomp, supervise, wire
from course_lib.grading.sandbox import limits as watch
from course_lib.grading.sandbox import session as sandbox

# The filter of system calls ---------------------------------------------------------------------------------------


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> str:
    """What the kernel would make of a call: its filter, step by step."""
    steps, at, value = seccomp.program(machine), 0, 0
    facts = {0: number, 4: seccomp._MACHINES[machine][0] if audit is None else audit}
    facts |= {16 + 8 * index: argument % 2**32 for index, argument in enumerate((*arguments, 0, 0, 0, 0, 0, 0)[:6])}
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


# Numbers as the kernel's own headers have them.
NUMBERS = {
    "x86_64": {
        "read": 0, "write": 1, "exit": 60, "mmap": 9, "futex": 202, "openat": 257, "restart_syscall": 219,
        "rt_sigreturn": 15, "epoll_ctl": 233, "statx": 332,
        "fork": 57, "vfork": 58, "execve": 59, "socket": 41, "connect": 42, "setsockopt": 54, "memfd_create": 319,
        "flock": 73, "io_setup": 206, "io_uring_setup": 425, "ptrace": 101, "kill": 62, "tkill": 200,
        "landlock_create_ruleset": 444, "mbind": 237, "mlock": 149, "setxattr": 188, "timer_create": 222,
        "inotify_init1": 294, "unshare": 272, "mount": 165, "bpf": 321, "sendmsg": 46, "sched_setaffinity": 203,
        "clone": 56, "clone3": 435, "prlimit64": 302, "fcntl": 72, "ioctl": 16, "prctl": 157, "tgkill": 234,
        "socketpair": 53,
    },
    "aarch64": {
        "read": 63, "write": 64, "exit": 93, "mmap": 222, "futex": 98, "openat": 56, "restart_syscall": 128,
        "rt_sigreturn": 139, "epoll_ctl": 21, "statx": 291,
        "execve": 221, "socket": 198, "connect": 203, "setsockopt": 208, "memfd_create": 279,
        "flock": 32, "io_setup": 0, "io_uring_setup": 425, "ptrace": 117, "kill": 129, "tkill": 130,
        "landlock_create_ruleset": 444, "mbind": 235, "mlock": 228, "setxattr": 5, "timer_create": 107,
        "inotify_init1": 26, "unshare": 97, "mount": 40, "bpf": 280, "sendmsg": 211, "sched_setaffinity": 122,
        "clone": 220, "clone3": 435, "prlimit64": 261, "fcntl": 25, "ioctl": 29, "prctl": 167, "tgkill": 131,
        "socketpair": 199,
    },
}  # fmt: skip
WITH_ARGUMENTS = ("clone", "clone3", "prlimit64", "fcntl", "ioctl", "prctl", "tgkill", "socketpair")


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_lets_calculations_through_and_nothing_else_out(machine):
    calls = NUMBERS[machine]
    said = {name: verdict(machine, number) for name, number in calls.items() if name not in WITH_ARGUMENTS}
    allowed = {name for name, what in said.items() if what == "allow"}
    assert allowed == set(list(calls)[:10])
    assert {what for name, what in said.items() if name not in allowed} == {"error 1"}
    assert verdict(machine, 0x40000000 + calls["read"]) == "error 1"
    assert verdict(machine, calls["read"], audit=0x40000003) == "kill"
    assert {verdict(machine, number) for number in (451, 457, 462, 9999)} == {"error 38"}, "later than the list"
    n_allowed = sum(verdict(machine, number) == "allow" for number in range(600) if number not in calls.values())
    assert n_allowed < 160  # of some 450


def allowed(machine: str, name: str, values: dict, at: int = 0) -> set:
    """Of named values of one argument those that pass."""
    given = {key: verdict(machine, NUMBERS[machine][name], *(0,) * at, value) for key, value in values.items()}
    return {key for key, said in given.items() if said == "allow"}


@pytest.mark.parametrize("machine", NUMBERS)
def test_what_depends_on_arguments(machine):
    flags = {"glibc's thread": 0x3D0F00, "glibc's fork": 0x1200011, "own files": 0x3D0B00, "files alone": 0x400}
    flags |= {"a thread in another network": 0x403D0F00, "a thread among other mounts": 0x3F0F00}
    assert allowed(machine, "clone", flags) == {"glibc's thread"}
    assert verdict(machine, NUMBERS[machine]["clone3"]) == "error 38"
    assert allowed(machine, "prlimit64", {process: process for process in range(3)}) == {0}
    assert allowed(machine, "socketpair", {family: family for family in range(46)}) == {1}
    commands = {"copy": 0, "flags": 4, "lock": 6, "wait for a lock": 7, "owner": 8, "signal": 10, "own lock": 37}
    commands |= {"lease": 1024, "watch": 1026, "copy, closed on exec": 1030, "larger pipe": 1031}
    assert allowed(machine, "fcntl", commands, 1) == {"copy", "flags", "copy, closed on exec"}
    assert allowed(machine, "ioctl", {"is it a terminal": 0x5401, "type into it": 0x5412, "clone": 0x40049409}, 1) == {
        "is it a terminal"
    }
    assert verdict(machine, NUMBERS[machine]["ioctl"], 1, 0x40049409) == "error 25"
    options = {"name": 15, "signal at the parent's death": 1, "hide": 4, "filter": 22, "one's own syscalls": 59}
    assert allowed(machine, "prctl", options) == {"name"}
    signals = {number: number for number in range(65)}
    assert allowed(machine, "tgkill", signals, 2) == set(range(65)) - {9, 19}


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
    """A second later whenever somebody looks; of these the process calculates some, and has no processor in others."""

    def __init__(self, calculates: float, starves: float):
        self.now, self.calculates, self.starves = 0.0, calculates, starves

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def monotonic(self) -> float:
        return self.now

    def calculated(self, _: int) -> float:
        return self.calculates * self.now

    def starved(self, _: int) -> float:
        return self.starves * self.now


@pytest.mark.parametrize(
    ("calculates", "starves", "seconds", "how"),
    [
        (1.0, 0.0, 11, "time"),  # a machine of its own
        (0.5, 0.5, 21, "time"),  # half of one
        (0.125, 0.875, 81, "time"),  # an eighth
        (0.0, 0.0, 21, "waiting"),  # it sleeps
        (0.0, 0.5, 41, "waiting"),  # it sleeps, and is hardly ever woken
        (0.0, 1.0, 201, "waiting"),  # it never runs: there is an end to everything
    ],
)
def test_an_exercise_of_ten_seconds_is_stopped_for_what_it_calculates(monkeypatch, calculates, starves, seconds, how):
    clock, ways = Clock(calculates, starves), os.pipe()
    for name in ("starved", "calculated"):
        monkeypatch.setattr(watch, name, getattr(clock, name))
    monkeypatch.setattr(watch, "broken", lambda *_: "")
    monkeypatch.setattr(rounds.time, "monotonic", clock.monotonic)
    attended = rounds.Round(0, frames.FROM_CHILD, 1, lambda *_: None, Limits(seconds=10.0), set())
    attended.clock, attended.looked, attended.process = clock, 0.0, 0
    while not (said := attended._broken()):
        pass
    assert (clock.now, said) == (seconds, how)
    for way in ways:
        os.close(way)


@pytest.mark.parametrize(
    ("calculated", "passed", "waited", "counts"),
    [(3.0, 4.0, 1.0, 3.0), (0.0, 4.0, 0.0, 2.0), (1.0, 9.0, 8.0, 1.0), (0.0, 400.0, 400.0, 20.0)],
)
def test_seconds_of_the_processor_count_and_half_of_those_that_are_waited(calculated, passed, waited, counts):
    assert call.counted(calculated, passed, waited) == counts


@pytest.mark.parametrize(("busy", "least"), [(0.0, 0.2), (0.3, 0.5), (math.inf, 2.0)])
def test_a_call_that_sleeps_is_not_stopped_for_the_time_in_which_a_busy_machine_did_not_run_it(
    monkeypatch, busy, least
):
    begun, told = time.monotonic(), iter([0.0])
    monkeypatch.setattr(call, "starved", lambda: next(told, busy))
    monkeypatch.setattr(call.signal, "setitimer", quick(call.signal.setitimer))
    with pytest.raises(call.DidNotFinish), call.limited(0.1):
        time.sleep(60)
    assert time.monotonic() - begun >= 0.9 * least


def test_a_call_that_calculates_is_stopped_however_much_a_machine_starves_it(monkeypatch):
    begun, told = time.thread_time(), iter([0.0])
    monkeypatch.setattr(call, "starved", lambda: next(told, math.inf))
    monkeypatch.setattr(call.signal, "setitimer", quick(call.signal.setitimer))
    with pytest.raises(call.DidNotFinish), call.limited(0.1):
        never_end()
    assert time.thread_time() - begun >= 0.09


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
    assert (answer.status, answer.outcomes) == ("ran", (Outcome(1.5), Outcome(1.5)))
    assert answer.seconds > 1.5, "reading the messages counts"
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
        ("time", 0, "after 30 seconds of calculating"), ("waiting", 0, "after 60 seconds, most of which it waited"),
        ("budget", 0, "240 seconds for all exercises"), ("memory", 0, "768 MiB"), ("processes", 0, "24 threads"),
        ("files", 0, "files"),
        ("channel", 0, "4 MiB"), ("exit", 3, "exit code 3"), ("signal", 11, "signal 11"),
        ("signal", 24, "more than 20 seconds"),
        ("killed", 9, "killed from outside"), ("signal", 31, "a system call"),
        ("signal", 15, "Signal 15 ended"),
        ("silence", 0, "not answer any more"), ("warden", 0, "not known"), ("invented", 0, "not known"),
        ("reading: time", 0, "more than 15 seconds"), ("reading: signal", 11, "broke the reader"),
        ("reading: exit", 1, "broke the reader"), ("reading: memory", 0, "more than 768 MiB"),
        ("reading: channel", 0, "too large"), ("reading: budget", 0, "240 seconds for all exercises"),
        ("reading: killed", 9, "killed from outside"), ("reading: waiting", 0, "more than 15 seconds"),
    ],
)  # fmt: skip
def test_every_end_has_its_sentence(how, number, said):
    answer = claim(PROGRAM, CASE, how=how, number=number)
    assert answer.status == "killed"
    assert said in answer.reason
    assert len(answer.outcomes) == 1  # what was finished before counts
    assert answer.lost == (how.removeprefix("reading: ") in ("killed", "silence", "warden"))


def test_an_empty_notebook_is_handed_in_like_any_other():
    session = sandbox._Session(b"", [ask("x.1", "right")], SMALL)
    content, ((task, hidden),), limits, spent = wire.loads(bytes(session.job[8:]), wire.JOB)
    assert (content.numel(), hidden.numel(), spent) == (0, 0, 0.0)
    assert Task(*task).exercise == "x.1"
    assert Limits(*limits) == SMALL
