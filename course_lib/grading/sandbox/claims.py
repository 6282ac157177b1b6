"""Turn the report of a student's process on one exercise into an Answer. The report is not trusted."""

import builtins
import re
import signal
import time
from typing import Any

from course_lib.checking.call import WAITING, Outcome
from course_lib.grading.records import Answer, Limits, Task
from course_lib.grading.sandbox import frames, wire

TEXT = 2000  # characters of a message that are kept
MOST = 20  # maximum number of notes, of names
READING_SECONDS = 20.0  # of the grader's processor time, for all messages on one exercise
LOST = ("killed", "warden", "silence")  # ends that the student did not cause; see seccomp.py on signals
# Names of errors that the student did not define: those of Python and of linear algebra.
_ERRORS = {name for name, kind in vars(builtins).items() if isinstance(kind, type)} | {"LinAlgError", "_LinAlgError"}
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
        self.spoilt, self.known, self.hidden, self.cost = "", False, False, 0.0

    def take(self, kind: bytes, content: bytes) -> None:
        """Process one message. If it is unreadable or out of place, the answer counts as broken from there on."""
        if self.spoilt or kind == frames.DONE:
            return
        began = time.thread_time()
        try:
            self._take(kind, wire.loads(content, wire.Bounds(n_bytes=frames.most_bytes(self.limits.result_bytes))))
        except Exception as error:  # it may contain anything
            why = "on a hidden case" if self.hidden else str(error)[:200].rstrip(".")
            self.spoilt = f"The message from the process of this exercise could not be read ({why})."
        self.cost += time.thread_time() - began
        if self.cost > READING_SECONDS:
            self.spoilt = f"The message from the process of this exercise took {READING_SECONDS:g} seconds to read."

    def _take(self, kind: bytes, value: Any) -> None:
        n_visible = len(self.task.arguments)
        if kind == frames.PROGRAM and not self.known:  # sent before the student's code runs, and never after
            self.program, self.known = _program(value), True
        elif kind == frames.HIDDEN and not self.hidden and len(self.outcomes) == n_visible:
            self.hidden = True
        elif kind == frames.CASE and self.hidden and len(self.outcomes) < n_visible + len(self.task.hidden):
            self.outcomes.append(_in_few_words(_outcome(value)))
        elif kind == frames.CASE and self.known and not self.hidden and len(self.outcomes) < n_visible:
            self.outcomes.append(_outcome(value))
        elif self.hidden:  # a process with the key to the hidden cases may send only values
            return
        elif kind == frames.UNUSABLE and isinstance(value, tuple) and value[:1] in (("not found",), ("not loaded",)):
            self.unusable = (value[0], _text(value[1:]))
        elif kind == frames.NOTE:
            self.notes.append(_text((value,)))
        elif kind == frames.TOUCHED:
            self.touched.append(_text((value,)))
        else:
            raise ValueError(f"a message {kind!r} that does not belong there.")

    def answer(self, how: str, number: int, seconds: float) -> Answer:
        """Return the answer, given how the process ended."""
        notes, code, uses, only_calls = self.program
        status, reason = "ran", ""
        if self.spoilt or how != "done":
            status, reason = "killed", self.spoilt or ended(how, number, self.limits, self.hidden)
        elif self.unusable:
            status, reason = self.unusable
        return Answer(
            self.task.exercise,
            status,
            tuple(self.outcomes),
            reason,
            notes=(*notes, *self.notes)[:MOST],
            seconds=seconds + self.cost,
            touched=tuple(self.touched[:MOST]),
            code=code,
            uses=uses,
            only_calls=only_calls,
            lost=how.removeprefix("reading: ") in LOST and not self.spoilt,
        )


def _program(value: Any) -> tuple:
    notes, code, uses, only_calls = value
    notes, uses = (tuple(_text((name,)) for name in names)[:MOST] for names in (notes, uses))
    return notes, _text((code,), 20 * TEXT), uses, only_calls is True


def _outcome(value: Any) -> Outcome:
    value, error, unattempted, endless, trace = value
    error = None if error is None else _text((error,)) or "it raised an error without a name"
    return Outcome(None if error else value, error, unattempted is True, endless is True, _text((trace,), 5 * TEXT))


def _in_few_words(outcome: Outcome) -> Outcome:
    """Shorten the outcome of a hidden case, so that its text cannot contain the arguments of the case."""
    if outcome.error is None:
        return outcome
    name = re.match(r"it raised (\w+)", outcome.error)
    known = name is not None and name[1] in _ERRORS
    kinds = ("it returned what cannot be compared", "it did not finish")
    said = next((kind for kind in kinds if outcome.error.startswith(kind)), "it raised an error")
    return Outcome(None, f"{name[0] if known else said}: on a hidden case", outcome.unattempted, outcome.endless)


def _text(values: tuple, most: int = TEXT) -> str:
    """Return the one text in the values, shortened."""
    if len(values) != 1 or not isinstance(values[0], str):
        raise ValueError("a message without its text.")
    return values[0][:most]


def ended(how: str, number: int, limits: Limits, hidden: bool = False) -> str:
    """Explain why a process did not finish, in a sentence for the student.

    Args:
        hidden: whether it had the hidden cases; then a number that it could choose is not passed on.
    """
    if how.startswith("reading: "):
        return _reading(how.removeprefix("reading: "), limits)
    seconds = f"{limits.seconds:g} seconds"
    sentences = {
        "time": f"It was stopped after {seconds} of calculating: does every loop end?",
        "waiting": f"It was stopped after {WAITING * limits.seconds:g} seconds, most of which it waited: what for?",
        "budget": f"It was stopped because the notebook has {limits.submission_seconds:g} seconds for all exercises "
        "together, and these were used up.",
        "memory": f"It was stopped because it took more than {_size(limits.memory_bytes)} of memory.",
        "processes": f"It was stopped because it had more than {limits.processes} threads or processes.",
        "files": "It was stopped because it made thousands of files or large ones; a function here needs none.",
        "channel": "It was stopped because what it sent to the grader was no answer, or larger than "
        f"{_size(limits.result_bytes)}.",
        "exit": "It ended its process "
        + ("on a hidden case." if hidden else f"(exit code {number}) before every case was run."),
        "signal": "It crashed on a hidden case." if hidden else _crash(number, limits),
        "killed": "Its process was killed from outside, as a machine does that runs out of memory; what it would have "
        "returned is not known.",
        "warden": "The sandbox ended while this exercise ran, so what it returned is not known.",
        "silence": "The sandbox did not answer any more, so what this exercise returned is not known.",
    }
    return sentences.get(how, sentences["warden"])


def _reading(how: str, limits: Limits) -> str:
    """Explain why there is nothing to run if the notebook itself broke the process that reads it."""
    if how == "budget" or how in LOST:
        return ended(how, 0, limits)
    slow = f"that took more than {limits.seconds / 2:g} seconds"
    why = {
        "time": slow,
        "waiting": slow,
        "memory": f"that took more than {_size(limits.memory_bytes)} of memory",
        "channel": "what this exercise needs of it is too large",
    }
    return f"The notebook was not read to its end: {why.get(how, 'what this exercise needs of it broke the reader')}."


def _crash(number: int, limits: Limits) -> str:
    if number == signal.SIGXCPU:
        return (
            f"It was stopped because one call, or one statement, calculated for more than {limits.call_seconds:g} "
            "seconds: does every loop end?"
        )
    if number == signal.SIGSYS:
        return "The sandbox ended it for a system call that no calculation makes (signal 31)."
    if number in _CRASHES:
        return (
            f"Python itself crashed (signal {number}): an endless recursion, or memory written where it should not be?"
        )
    return f"Signal {number} ended it, which it had sent to itself, before every case was run."


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:g} MiB"
