"""One process for each exercise: watched, ended with all that it left behind, its messages passed on.

This code never looks into a notebook or an answer; it copies messages whose length it has checked. In the sandbox it is
process 1, which no signal from inside reaches, and hides its memory and its files from all others.
"""

import json
import os
import secrets
import select
import time

from course_lib.checking.call import AT_MOST
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import child, frames, wire
from course_lib.grading.sandbox import limits as watch

LOOK = 0.02  # seconds between two looks at memory and processes


def serve(source: int, out: int) -> None:
    """Do a job. An end before all of its tasks are run asks for another sandbox for the rest."""
    length = int.from_bytes(_read(source, 8), "big")
    notebook, tasks, limits = wire.loads(_read(source, length), wire.JOB)
    content, limits = notebook.numpy().tobytes(), Limits(*limits)
    kept = set(os.listdir("/tmp"))  # where a project under /tmp is mounted
    _write(out, frames.READY)
    for index, task in enumerate(Task(*task) for task in tasks):
        _write(out, frames.STARTED, index)
        ended, clean = _round(source, out, content, index, task, limits, kept)
        _write(out, frames.ENDED, index, json.dumps(ended).encode())
        if not clean:
            break


def _read(source: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(source, min(length, 2**20))
        if not part:
            raise SystemExit("The job ended before its end.")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write(out: int, kind: bytes, index: int = 0, content: bytes = b"") -> None:
    view = memoryview(frames.pack(kind, index, content))
    while view:
        view = view[os.write(out, view) :]


def _round(
    source: int, out: int, content: bytes, index: int, task: Task, limits: Limits, kept: set[str]
) -> tuple[tuple[str, int, float], bool]:
    """Run one exercise. How it ended, the number that belongs to it and the seconds; whether nothing is left of it."""
    pipe, theirs = os.pipe()
    no_memory = 64 + secrets.randbelow(128)  # the exit code that says so; a fixed one could be a student's own
    process = os.fork()
    if process == 0:
        child.run(content, index, task, limits, theirs, no_memory)
    os.close(theirs)
    attended = _Round(source, out, pipe, process, task, limits, no_memory)
    try:
        how, number = attended.attend()
        return (how, number, attended.clock.seconds), watch.rest_is_gone(process, kept)
    finally:
        os.close(pipe)


class _Round:
    """Attends to one process until it is done, has ended, or breaks a limit."""

    def __init__(self, source: int, out: int, pipe: int, process: int, task: Task, limits: Limits, no_memory: int):
        self.source, self.out, self.pipe, self.process, self.limits = source, out, pipe, process, limits
        self.no_memory = no_memory
        self.reader = frames.Reader(frames.FROM_CHILD, limits.result_bytes + 2**20, len(task.arguments) + 100)
        self.clock, self.looked, self.open = watch.Stopwatch(), 0.0, True
        os.set_blocking(pipe, False)

    def attend(self) -> tuple[str, int]:
        """How it ended, and a number: of an exit's code or a signal, else 0.

        "done", "channel", "time", "memory", "processes", "files", "exit" or "signal".
        """
        while True:
            waited_for = [self.source, self.pipe] if self.open else [self.source]
            ready = select.select(waited_for, [], [], LOOK)[0]
            if self.source in ready:  # the outside is gone
                watch.rest_is_gone(self.process, set())
                raise SystemExit("The job was given up.")
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if how := self._forward():  # first, for what it had sent before it ended
                return how, 0
            if ended:
                return self._ended(status)
            if how := self._broken():
                return how, 0

    def _forward(self) -> str:
        """Pass on what has come; after the end of the process, that is all there is."""
        try:
            while data := os.read(self.pipe, 2**16):
                for kind, index, content in self.reader.feed(data):
                    _write(self.out, kind, index, content)
                    if kind in (frames.DONE, frames.UNUSABLE):
                        return "done"
                if len(data) < 2**16:
                    return ""
            self.open = False
        except BlockingIOError:
            pass
        except ValueError:
            return "channel"
        return ""

    def _ended(self, status: int) -> tuple[str, int]:
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        code = os.waitstatus_to_exitcode(status)
        return ("memory" if code == self.no_memory else "exit"), code

    def _broken(self) -> str:
        over = self.clock.tick() - self.limits.seconds
        if over > 0 and over > min(watch.starved(self.process), (AT_MOST - 1) * self.limits.seconds):
            return "time"
        now = time.monotonic()
        if now - self.looked < LOOK:
            return ""
        self.looked = now
        return watch.broken(self.process, self.limits)
