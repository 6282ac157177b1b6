"""Any sequence of messages costs at most the exercise that sends it: searched for by hypothesis, without a process.

What runs here is the code of the warden that passes messages on (`Round.pass_on`) and the code outside that takes them
(`_Session`), joined by the same pipes as in a sandbox. The student's process is whatever hypothesis makes it do: valid
and odd messages in any order, bytes that are no message, messages in parts, and anything that it can do to the pipe on
which it waits for the key.
"""

import fcntl
import json
import os
import struct
import termios
from contextlib import suppress
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from submitting import CASES, SMALL, ask
from test_forged_claims import EXERCISE

from course_lib.grading import engine
from course_lib.grading.records import Answer
from course_lib.grading.sandbox import frames, sealed, session, wire
from course_lib.grading.sandbox.rounds import Round

SECRET = 31337.0
HIDDEN = ((torch.tensor([SECRET, 4.0]),), (torch.tensor([SECRET]),))
BOUNDS = replace(SMALL, result_bytes=2**16)
N_EXERCISES = 3
# How a process can end by itself or be ended for what it does, with the number that it may choose.
ENDS = ("exit", "signal", "time", "waiting", "memory", "processes", "files", "budget")
ODD = (None, True, "", 1.5, (), {}, ("not found", "told"), ("not loaded",), torch.zeros(2), "x" * 3000, (("n",), 1))


def packed(value: object) -> bytes:
    return wire.dumps(value, wire.Bounds())


def case(value: object, error: str | None = None) -> bytes:
    return frames.pack(frames.CASE, 0, packed((value, error, False, False, "")))


STAGES = ("at the start", "at the start", "after the visible cases", "with the key")
# Messages of others, more than may come, and lengths that nobody may announce.
REFUSED = [
    frames.pack(kind, 0, packed(((), "other code", (), True)))
    for kind in (frames.PROGRAM, frames.CODE, frames.LOADED, frames.READY, frames.STARTED, b"?", b"\0")
]
REFUSED += [frames.pack(frames.ENDED, 0, json.dumps((how, 0, 0.0)).encode()) for how in ("done", "killed", "warden")]
REFUSED += [
    frames.pack(kind, 0, packed("x")) * 150 for kind in (frames.NOTE, frames.TOUCHED, frames.CASE, frames.HIDDEN)
]
REFUSED += [struct.pack("<cHI", kind, 0, n) for kind in (frames.CASE, frames.DONE) for n in (2**16, 2**21, 2**32 - 1)]


def waiting_in(pipe: int) -> int:
    """How many bytes are left unread."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


class Bench:
    """The warden and the outside of one submission, in this process."""

    def __init__(self) -> None:
        self.tasks = [replace(ask(f"x.{n}", "right"), hidden=HIDDEN) for n in range(N_EXERCISES)]
        self.outside = session._Session(b"", self.tasks, BOUNDS)
        self.source, stdin = os.pipe()
        self.outside.stdin = os.fdopen(stdin, "wb", 0)
        os.set_blocking(stdin, False)
        self.keys = [bytes(key) for key in self.outside.keys]
        self.answers_to_requests = 0

    def close(self) -> None:
        self.outside.stdin.close()
        os.close(self.source)

    def begin(self) -> None:
        """Start a round, as the warden does before a process of an exercise runs."""
        index = len(self.outside.finished)
        self.key, self.round_in = os.pipe()
        os.set_blocking(self.round_in, False)
        os.set_blocking(self.key, False)
        task = self.tasks[index]
        n_messages = len(task.arguments) + len(task.hidden) + 100
        self.round = Round(self.source, frames.FROM_CHILD, n_messages, self.take, BOUNDS, set())
        self.round.way_in = self.round_in
        self.how = ""
        self.out(frames.pack(frames.STARTED, index))
        self.out(frames.pack(frames.PROGRAM, index, packed(((), "code", (), False))))

    def take(self, kind: bytes, _: int, content: bytes) -> None:
        self.out(frames.pack(kind, len(self.outside.finished), content))
        if kind == frames.HIDDEN:
            self.answers_to_requests += 1
            assert waiting_in(self.source) == 1 + sealed.KEY_BYTES, "the warden would wait for ever, or leave some over"

    def out(self, data: bytes) -> None:
        """As `_Session._read` takes it."""
        for message in self.outside.reader.feed(data):
            self.outside._take(*message)

    def send(self, data: bytes) -> None:
        self.how = self.how or self.round.pass_on(data)

    def end(self, how: str, number: int = 0) -> Answer:
        for pipe in (self.key, self.round_in):
            if pipe >= 0:  # the process may have closed its own
                os.close(pipe)
        self.out(frames.pack(frames.ENDED, len(self.outside.finished), json.dumps((how, number, 0.1)).encode()))
        return self.outside.finished[-1]

    def honest(self) -> Answer:
        """An exercise in which everything is as it should be."""
        self.begin()
        index = len(self.outside.finished)
        for (x,) in CASES:
            self.send(case(x * 2))
        self.send(frames.pack(frames.HIDDEN, 0, packed(None)))
        assert os.read(self.key, 100) == self.keys[index], "the key of this exercise, and nothing else"
        for (x,) in HIDDEN:
            self.send(case(x * 2))
        self.send(frames.pack(frames.DONE))
        assert self.how == "done"
        return self.end("done")


def words(answer: Answer) -> str:
    """All that an answer says besides values."""
    outcomes = tuple(replace(outcome, value=None) for outcome in answer.outcomes)
    return json.dumps(asdict(replace(answer, outcomes=outcomes, seconds=0.0)))


def assert_right(answer: Answer) -> None:
    assert (answer.status, answer.lost, answer.notes, answer.reason) == ("ran", False, (), "")
    assert [o.error for o in answer.outcomes] == [None] * 4
    assert all(torch.equal(o.value, x * 2) for o, (x,) in zip(answer.outcomes, (*CASES, *HIDDEN), strict=True)), (
        answer.outcomes
    )


class Hostile(RuleBasedStateMachine):
    """One hostile exercise, between honest ones of the same submission."""

    def __init__(self) -> None:
        super().__init__()
        self.bench, self.rest, self.over, self.told, self.held = Bench(), b"", False, "", b""

    @initialize(first=st.booleans(), end=st.sampled_from(ENDS), stage=st.sampled_from(STAGES))
    def start(self, first: bool, end: str, stage: str) -> None:
        """Every second search begins where a process has done some of what it should, so that it comes further."""
        self.end = end
        if not first:
            assert_right(self.bench.honest())
        self.index = len(self.bench.outside.finished)
        self.bench.begin()
        if stage != "at the start":
            self.write(b"".join(case(x * 2) for (x,) in CASES))
        if stage == "with the key":
            self.write(frames.pack(frames.HIDDEN, 0, packed(None)))
            self.reads_the_key()

    def write(self, data: bytes, part: float = 1.0) -> None:
        """To the pipe; of the last message perhaps only a part for now, which the next one completes."""
        data = self.rest + data
        n = round(part * len(data))
        self.rest = data[n:]
        if not self.over:
            self.bench.send(data[:n])
            self.over = bool(self.bench.how)

    PARTS = st.sampled_from((1.0, 1.0, 1.0, 0.9, 0.5, 0.0))

    @rule(at=st.integers(0, 3), part=PARTS, error=st.sampled_from((None, None, "it raised ValueError: x", "")))
    def says_a_case(self, at: int, part: float, error: str | None) -> None:
        self.write(case((*CASES, *HIDDEN)[at][0] * 2, error), part)

    @rule(value=st.sampled_from(ODD), part=PARTS)
    def says_a_strange_case(self, value: object, part: float) -> None:
        self.write(frames.pack(frames.CASE, 9, packed(value)), part)

    @rule(times=st.integers(1, 3), content=st.sampled_from((packed(None), packed("now"), b"", b"\xff" * 9)), part=PARTS)
    def asks_for_the_key(self, times: int, content: bytes, part: float) -> None:
        self.write(frames.pack(frames.HIDDEN, 0, content) * times, part)
        if self.bench.key >= 0:
            self.reads_the_key()

    @rule(part=PARTS)
    def answers_all_visible_cases_and_asks(self, part: float) -> None:
        self.write(b"".join(case(x * 2) for (x,) in CASES) + frames.pack(frames.HIDDEN, 0, packed(None)), part)

    @rule(kind=st.sampled_from((frames.NOTE, frames.TOUCHED, frames.UNUSABLE)), value=st.sampled_from(ODD), part=PARTS)
    def says_something(self, kind: bytes, value: object, part: float) -> None:
        self.write(frames.pack(kind, 0, packed(value)), part)

    @precondition(lambda self: self.bench.keys[self.index] in self.held)
    @rule(kind=st.sampled_from((frames.NOTE, frames.TOUCHED, frames.UNUSABLE, frames.CASE)), part=PARTS)
    def tells_what_it_learned(self, kind: bytes, part: float) -> None:
        """A process with the key may send the hidden numbers; they reach no message."""
        self.told = "told-31337"
        said = {frames.CASE: (None, f"it raised {self.told}: {self.told}", False, True, self.told)}
        said |= {frames.UNUSABLE: ("not loaded", self.told)}
        self.write(frames.pack(kind, 0, packed(said.get(kind, self.told))), part)

    @rule(data=st.sampled_from(REFUSED) | st.binary(min_size=1, max_size=12))
    def says_what_may_not_come(self, data: bytes) -> None:
        self.write(data)

    @rule(part=PARTS)
    def says_that_it_is_done(self, part: float) -> None:
        self.write(frames.pack(frames.DONE), part)

    @rule()
    def fills_the_pipe_of_the_key(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            while True:
                os.write(self.bench.round_in, bytes(2**12))

    @rule()
    def closes_the_pipe_of_the_key(self) -> None:
        if self.bench.key >= 0:
            os.close(self.bench.key)
            self.bench.key = -1

    @precondition(lambda self: self.bench.key >= 0)
    @rule()
    def reads_the_key(self) -> None:
        with suppress(BlockingIOError):
            self.held += os.read(self.bench.key, 2**17)

    @invariant()
    def the_key_comes_once_and_only_after_the_visible_cases(self) -> None:
        assert waiting_in(self.bench.source) == 0, "what is left over would be taken by the next exercise"
        assert self.bench.answers_to_requests <= len(self.bench.outside.finished) + 1
        others = [key for at, key in enumerate(self.bench.keys) if at != getattr(self, "index", -1)]
        assert not any(key[:8] in self.held for key in others), "the key of another exercise"
        running = self.bench.outside.running
        if running and not running.hidden:
            assert not any(key[:8] in self.held for key in self.bench.keys), "a key before its time"

    def teardown(self) -> None:
        """However it ends, the exercise alone pays for it."""
        if not hasattr(self, "index"):
            return self.bench.close()
        hidden = self.bench.outside.running.hidden
        answer = self.bench.end(self.bench.how or self.end, 213)
        assert not hidden or "213" not in words(answer), "a number of its choice"
        assert not answer.lost, "the grader would say that it failed"
        assert answer.status == "ran" or answer.reason
        assert self.told == "" or self.told not in words(answer)
        assert not any(key.hex() in words(answer) for key in self.bench.keys)
        drawn = EXERCISE.cases(torch.Generator().manual_seed(0))
        row = engine.exercise_result(EXERCISE, drawn[:2], drawn[2:4], answer)
        assert 0 <= row.points <= row.of
        assert_right(self.bench.honest())  # the next exercise of the submission
        self.bench.close()
        after = Bench()
        assert_right(after.honest())  # and the next student
        after.close()


TestAnySequence = Hostile.TestCase
TestAnySequence.settings = settings(
    max_examples=40, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


VISIBLE, ASKING, DONE = (
    b"".join(case(x * 2) for (x,) in CASES),
    frames.pack(frames.HIDDEN, 0, packed(None)),
    frames.pack(b"D"),
)
TOLD = [frames.pack(kind, 0, packed("told-31337")) for kind in (frames.NOTE, frames.TOUCHED)]
TOLD += [frames.pack(frames.CASE, 0, packed((None, "it raised told-31337: told-31337", False, True, "told-31337")))]
TOLD += [
    frames.pack(frames.CASE, 0, b"told-31337"),
    frames.pack(frames.UNUSABLE, 0, packed(("not loaded", "told-31337"))),
]


@pytest.mark.parametrize(
    ("parts", "pipe", "n_keys", "n_outcomes", "how"),
    [
        ([VISIBLE, ASKING, ASKING], "", 1, 2, "channel"),
        ([VISIBLE + ASKING * 4], "", 1, 2, "channel"),
        ([VISIBLE + ASKING + DONE], "", 1, 2, "done"),
        ([ASKING, VISIBLE, DONE], "", 0, 0, "channel"),
        ([case(torch.ones(1)), ASKING, case(torch.ones(1)), ASKING], "", 0, 1, "channel"),
        ([VISIBLE * 2, ASKING], "", 0, 2, "channel"),
        ([VISIBLE, frames.pack(frames.HIDDEN, 0, b"?"), ASKING], "", 0, 2, "channel"),
        ([VISIBLE, ASKING, DONE], "", 1, 2, "done"),
        ([VISIBLE, ASKING, VISIBLE, VISIBLE, DONE], "", 1, 4, "done"),
        ([VISIBLE, ASKING, *TOLD], "", 1, 3, "done"),
        ([VISIBLE, ASKING], "full", 0, 2, "channel"),
        ([VISIBLE, ASKING, ASKING], "closed", 0, 2, "channel"),
        ([VISIBLE, ASKING, ASKING[:3]], "", 1, 2, ""),
        ([VISIBLE, ASKING, struct.pack("<cHI", b"H", 0, 2**32 - 1)], "", 1, 2, "channel"),
    ],
)
def test_the_worst_sequences_cost_the_exercise_alone(parts, pipe, n_keys, n_outcomes, how):
    bench = Bench()
    assert_right(bench.honest())
    bench.begin()
    if pipe == "full":
        with suppress(BlockingIOError):
            while True:
                os.write(bench.round_in, b"x" * 2**12)
    if pipe == "closed":
        os.close(bench.key)
        bench.key = -1
    for part in parts:
        if not bench.how:
            bench.send(part)
    assert (bench.how, waiting_in(bench.source)) == (how, 0)
    held = b""
    with suppress(BlockingIOError):
        held = os.read(bench.key, 2**17) if bench.key >= 0 else b""
    assert (held.count(bench.keys[1]), any(key in held for key in (bench.keys[0], bench.keys[2]))) == (n_keys, False)
    answer = bench.end(bench.how or "exit", 213)
    assert (answer.lost, len(answer.outcomes)) == (False, n_outcomes)
    assert "31337" not in words(answer)
    assert n_keys == 0 or "213" not in words(answer), "a number of its choice"
    assert_right(bench.honest())
    bench.close()
