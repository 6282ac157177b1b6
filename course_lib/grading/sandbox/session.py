"""Run a submission's functions in a sandbox, and return the results that they claim.

This part is outside of the sandbox: it sends the job and reads messages of bounded size. started.py starts the sandbox.
"""

import json
import os
import selectors
from contextlib import suppress
from dataclasses import astuple, replace
from typing import IO, Literal

import numpy
import torch
from torch import Tensor

from course_lib.checking.call import AT_MOST
from course_lib.grading.intake.submission import NOTEBOOK_BYTES
from course_lib.grading.records import Answer, Limits, Task
from course_lib.grading.sandbox import bubblewrap, frames, sealed, started, wire
from course_lib.grading.sandbox import limits as watch
from course_lib.grading.sandbox.claims import Claims

GRACE = 20.0  # seconds beyond a limit after which we give up on the warden itself
STARTS = 3  # attempts to start a sandbox, on a machine that may be short of memory for a moment
LOOK = 0.5


def unavailable() -> str | None:
    """Explain why submissions cannot be run in a sandbox here, and what to do about it; return None if they can."""
    return bubblewrap.variant()[1] or None


def run(notebook: bytes, tasks: list[Task], limits: Limits, kind: Literal["bwrap", "none"] = "bwrap") -> list[Answer]:
    """Run a notebook's functions: one answer for every task, in their order, whatever the notebook contains.

    Args:
        kind: "none" runs untrusted code with the rights of this process.

    Raises:
        ValueError: if there is no sandbox, or it does not start.
    """
    if kind == "bwrap" and (problem := unavailable()):
        raise ValueError(problem)
    if len(notebook) > NOTEBOOK_BYTES:
        reason = f"got a notebook of more than {NOTEBOOK_BYTES >> 20} MiB; clear its outputs and hand it in again."
        return [Answer(task.exercise, "not loaded", reason=reason) for task in tasks]
    answers: list[Answer] = []
    failures = 0
    while len(answers) < len(tasks):  # if a sandbox ended early, another one runs the remaining tasks
        session = _Session(notebook, tasks[len(answers) :], limits, sum((answer.seconds for answer in answers), 0.0))
        with started.job(limits, kind) as pipes:
            session.attend(pipes)
        answers += session.answers()
        failures = 0 if session.answers() else failures + 1
        if failures == STARTS:
            raise ValueError(f"the sandbox does not start: {session.said() or 'it does not say why'}")
    return answers


class _Session:
    """One sandbox: send the job, receive the messages, and decide when to give up.

    Args:
        spent: seconds that the submission has used up already.
    """

    def __init__(self, notebook: bytes, tasks: list[Task], limits: Limits, spent: float = 0.0):
        self.tasks, self.limits = tasks, limits
        content = torch.from_numpy(numpy.frombuffer(bytearray(notebook), dtype=numpy.uint8))
        self.keys = [sealed.new_key() for _ in tasks]
        asked = tuple(_asked(task, key) for task, key in zip(tasks, self.keys, strict=True))
        job = wire.dumps((content, asked, astuple(limits), spent), wire.JOB)
        self.job = memoryview(len(job).to_bytes(8, "big") + job)
        n_messages = sum(len(task.arguments) + len(task.hidden) + 200 for task in tasks)
        # For each exercise, messages of its own process, of the process that reads the notebook, and of the warden.
        n_bytes = (2 * frames.most_bytes(limits.result_bytes) + 2**20) * len(tasks)
        self.reader = frames.Reader(frames.FROM_WARDEN, n_bytes, n_messages)
        self.clock, self.patience = watch.Stopwatch(), limits.start_seconds
        self.finished: list[Answer] = []
        self.running: Claims | None = None
        self.errors, self.why = b"", "warden"

    def attend(self, pipes: started.Pipes) -> None:
        """Read until every task is answered, the sandbox ends, or no message has arrived for too long."""
        self.stdin = pipes.stdin
        with selectors.DefaultSelector() as selector:
            for pipe, events in ((pipes.stdin, 2), (pipes.stdout, 1), (pipes.stderr, 1)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, events)
            while len(self.finished) < len(self.tasks):
                ready = [key.fileobj for key, _ in selector.select(LOOK)]
                if pipes.stdin in ready and not self._feed(pipes.stdin):
                    selector.unregister(pipes.stdin)
                if pipes.stderr in ready and not self._listen(pipes.stderr):
                    selector.unregister(pipes.stderr)
                if pipes.stdout in ready and not self._read(pipes.stdout):
                    return
                if self.clock.tick() > self.patience:
                    self.why = "silence"
                    return

    def _feed(self, pipe: IO[bytes]) -> bool:
        """Send a part of the job. Return False if all is sent, or the pipe is closed."""
        try:
            self.job = self.job[os.write(pipe.fileno(), self.job[: 2**16]) :]
        except BrokenPipeError:
            return False
        return bool(self.job)

    def _listen(self, pipe: IO[bytes]) -> bool:
        data = os.read(pipe.fileno(), 2**16)
        self.errors = (self.errors + data)[: started.TEXT]
        return bool(data)

    def _read(self, pipe: IO[bytes]) -> bool:
        """Read the messages that have arrived. Return False at the end, or for a message that no warden sends."""
        data = os.read(pipe.fileno(), 2**16)
        try:
            for message in self.reader.feed(data):
                self._take(*message)
        except ValueError:
            return False
        return bool(data)

    def _take(self, kind: bytes, index: int, content: bytes) -> None:
        if kind == frames.READY or kind == frames.STARTED:
            if kind == frames.STARTED:
                self.running = Claims(self.tasks[len(self.finished)], self.limits)
            self.clock, self.patience = watch.Stopwatch(), AT_MOST * self.limits.seconds + GRACE
        elif self.running is None:
            raise ValueError("got an answer before its exercise was started.")
        elif kind == frames.ENDED:
            how, number, seconds = json.loads(content)
            self.finished.append(self.running.answer(str(how), int(number), float(seconds)))
            self.running, self.clock = None, watch.Stopwatch()
        else:
            had_key = self.running.hidden
            self.running.take(kind, content)
            if kind == frames.HIDDEN:
                self._answer_request(self.running.hidden and not had_key)

    def _answer_request(self, allowed: bool) -> None:
        """Send the key of this exercise, or refuse it; the warden waits for one of the two.

        The pipe is empty at this point, so the whole answer fits.
        """
        with suppress(BrokenPipeError):
            key = self.keys[len(self.finished)] if allowed else None
            os.write(self.stdin.fileno(), sealed.answer_to_request(key))

    def answers(self) -> list[Answer]:
        """Return the known answers, and one for the exercise during which the sandbox ended."""
        over = [self.running.answer(self.why, 0, self.clock.seconds)] if self.running else []
        return [*self.finished, *over]

    def said(self) -> str:
        """Return the last line of output other than the answers."""
        return self.errors.decode(errors="replace").strip().rpartition("\n")[2]


def _asked(task: Task, key: bytes) -> tuple[tuple, Tensor]:
    """Return a task without its hidden cases, and these sealed; an empty tensor if there are none."""
    hidden = sealed.seal(task.hidden, key) if task.hidden else torch.empty(0, dtype=torch.uint8)
    return astuple(replace(task, hidden=())), hidden
