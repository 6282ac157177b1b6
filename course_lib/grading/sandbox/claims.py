"""What a student's process says about one exercise becomes an Answer. It may say anything."""

import signal
from typing import Any

from course_lib.checking.call import Outcome
from course_lib.grading.records import Answer, Limits, Task
from course_lib.grading.sandbox import frames, wire

TEXT = 2000  # characters of a message that are kept
MOST = 20  # notes, names
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}


class Claims:
    """Collects the messages on one exercise."""

    def __init__(self, task: Task, limits: Limits):
        self.task, self.limits = task, limits
        self.program: tuple = ((), "", (), False)
        self.outcomes: list[Outcome] = []
        self.notes: list[str] = []
        self.touched: list[str] = []
        self.unusable: tuple[str, str] | None = None
        self.spoilt, self.known = "", False

    def take(self, kind: bytes, content: bytes) -> None:
        """One message. What cannot be read, or does not belong there, spoils the answer from there on."""
        if self.spoilt or kind == frames.DONE:
            return
        try:
            self._take(kind, wire.loads(content, wire.Bounds(n_bytes=self.limits.result_bytes + 2**20)))
        except Exception as error:  # it may be anything
            reason = str(error)[:200].rstrip(".")
            self.spoilt = f"What the process of this exercise sent back could not be read ({reason})."

    def _take(self, kind: bytes, value: Any) -> None:
        if kind == frames.PROGRAM and not self.known:  # sent before the student's code runs, and never again
            self.program, self.known = _program(value), True
        elif kind == frames.CASE and self.known and len(self.outcomes) < len(self.task.arguments):
            self.outcomes.append(_outcome(value))
        elif kind == frames.UNUSABLE and isinstance(value, tuple) and value[:1] in (("not found",), ("not loaded",)):
            self.unusable = (value[0], _text(value[1:]))
        elif kind == frames.NOTE:
            self.notes.append(_text((value,)))
        elif kind == frames.TOUCHED:
            self.touched.append(_text((value,)))
        else:
            raise ValueError(f"a message {kind!r} that does not belong there.")

    def answer(self, how: str, number: int, seconds: float) -> Answer:
        """The answer, now that it is known how the process ended."""
        notes, code, uses, only_calls = self.program
        status, reason = "ran", ""
        if self.spoilt or how != "done":
            status, reason = "killed", self.spoilt or ended(how, number, self.limits)
        elif self.unusable:
            status, reason = self.unusable
        return Answer(
            self.task.exercise,
            status,
            tuple(self.outcomes),
            reason,
            notes=(*notes, *self.notes)[:MOST],
            seconds=seconds,
            touched=tuple(self.touched[:MOST]),
            code=code,
            uses=uses,
            only_calls=only_calls,
        )


def _program(value: Any) -> tuple:
    notes, code, uses, only_calls = value
    notes, uses = (tuple(_text((name,)) for name in names)[:MOST] for names in (notes, uses))
    return notes, _text((code,), 20 * TEXT), uses, only_calls is True


def _outcome(value: Any) -> Outcome:
    value, error, unattempted, endless, trace = value
    error = None if error is None else _text((error,)) or "it raised an error without a name"
    return Outcome(None if error else value, error, unattempted is True, endless is True, _text((trace,), 5 * TEXT))


def _text(values: tuple, most: int = TEXT) -> str:
    """The one text in there, cut."""
    if len(values) != 1 or not isinstance(values[0], str):
        raise ValueError("a message without its text.")
    return values[0][:most]


def ended(how: str, number: int, limits: Limits) -> str:
    """Why a process did not come to its end, in a sentence for the student."""
    sentences = {
        "time": f"It was stopped after {limits.seconds:g} seconds: does every loop end?",
        "memory": f"It was stopped because it took more than {_size(limits.memory_bytes)} of memory.",
        "processes": f"It was stopped because it had more than {limits.processes} threads or processes.",
        "files": "It was stopped because it made thousands of files or large ones; a function here needs none.",
        "channel": "It was stopped because what it sent to the grader was no answer, or larger than "
        f"{_size(limits.result_bytes)}.",
        "exit": f"It ended the process it ran in (exit code {number}) before every case was run.",
        "signal": _crash(number),
        "warden": "The sandbox ended while this exercise ran, so what it returned is not known.",
        "silence": f"The sandbox did not answer any more, {limits.seconds:g} seconds after this exercise was started.",
    }
    return sentences.get(how, sentences["warden"])


def _crash(number: int) -> str:
    if number == signal.SIGXCPU:
        return "It was stopped because it used up its time on the processor: does every loop end?"
    if number == signal.SIGKILL:
        return "It was killed (signal 9): the machine does so when memory runs out, and a program can do so to itself."
    if number == signal.SIGSYS:
        return "The sandbox ended it for a system call that no calculation makes (signal 31)."
    if number in _CRASHES:
        return (
            f"Python itself crashed (signal {number}): an endless recursion, or memory written where it should not be?"
        )
    return f"Signal {number} ended it, which it had sent to itself, before every case was run."


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:g} MiB"
