"""Run a job inside the sandbox: one process reads the notebook, and each exercise runs in its own process.

This code never parses a notebook or an answer. In the sandbox it is process 1, which no signal from inside reaches,
and hides its memory and its files from all others.
"""

import json
import os
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import child, frames, wire
from course_lib.grading.sandbox.rounds import Act, End, Round, Take

READING = 0.5  # fraction of an exercise's seconds, for reading the notebook


def serve(source: int, out: int) -> None:
    """Do a job. If it ends before all tasks have run, another sandbox runs the remaining ones."""
    length = int.from_bytes(_read(source, 8), "big")
    notebook, tasks, limits, spent = wire.loads(_read(source, length), wire.JOB)
    kept = set(os.listdir("/tmp"))  # where a project under /tmp is mounted
    asked = [Task(*task) for task, _ in tasks]
    job = Job(source, out, notebook.numpy().tobytes(), asked, Limits(*limits), kept, spent)
    _write(out, frames.READY)
    for index, (_, hidden) in enumerate(tasks):
        _write(out, frames.STARTED, index)
        ended, clean = job.run(index, hidden)
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


@dataclass
class Job:
    """One submission, and its state so far.

    Args:
        kept: what may stay in /tmp.
        spent: seconds that its processes have used, including those in earlier sandboxes.
        read: by exercise, the messages of the process that read the notebook.
        unread: how that process ended, if no other one will follow.
    """

    source: int
    out: int
    notebook: bytes
    tasks: list[Task]
    limits: Limits
    kept: set[str]
    spent: float
    read: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    unread: End | None = None

    def run(self, index: int, hidden: Tensor) -> tuple[tuple[str, int, float], bool]:
        """Run one exercise. Return how it ended with the number for it and the seconds, and whether nothing is left."""
        before, clean = self.spent, True
        if index not in self.read:
            end = self.unread or self._read_from(index)
            if index not in self.read:
                return (f"reading: {end.how}", end.number, self.spent - before), end.clean
            clean = end.clean
        messages = self.read[index].copy()
        code = messages.pop(frames.CODE, b"")
        for kind, content in messages.items():
            _write(self.out, kind, index, content)
        if not code:
            return ("done", 0, self.spent - before), clean
        end = self._run(index, code, hidden)
        return (end.how, end.number, self.spent - before), clean and end.clean

    def _read_from(self, first: int) -> End:
        """Read for all exercises from the first on. An error that ends the process at one of them costs only that one;
        an error before, such as a cell that takes all memory, would end the next process too.
        """
        loaded = False

        def take(kind: bytes, index: int, content: bytes) -> None:
            nonlocal loaded
            loaded |= kind == frames.LOADED
            if kind not in (frames.DONE, frames.LOADED) and first <= index < len(self.tasks):
                self.read.setdefault(index, {})[kind] = content

        asked = [(i, task.exercise, task.function) for i, task in enumerate(self.tasks) if i >= first]
        act = partial(child.read, self.notebook, asked)
        end = self._round(frames.FROM_READER, 2 * len(asked) + 2, take, READING * self.limits.seconds, act)
        broken = not loaded and end.how not in ("done", "killed")
        if broken or end.how in ("time", "waiting", "budget"):
            self.unread = end
        return end

    def _run(self, index: int, code: bytes, hidden: Tensor) -> End:
        def take(kind: bytes, _: int, content: bytes) -> None:
            _write(self.out, kind, index, content)

        task = self.tasks[index]
        act = partial(child.answer, code, task, hidden, index, self.limits)
        return self._round(frames.FROM_CHILD, len(task.arguments) + len(hidden) + 100, take, self.limits.seconds, act)

    def _round(self, kinds: frozenset[bytes], n_messages: int, take: Take, seconds: float, act: Act) -> End:
        """Run one process, with the remaining seconds of the submission if these are fewer."""
        left = self.limits.submission_seconds - self.spent
        if left <= 0:
            return End("budget", 0, 0.0, True)
        limits = replace(self.limits, seconds=min(seconds, left))
        end = Round(self.source, kinds, n_messages, take, limits, self.kept).run(act)
        self.spent += end.seconds
        return replace(end, how="budget") if left < seconds and end.how in ("time", "waiting") else end
