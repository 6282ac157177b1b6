"""The process that runs a student's function for one exercise. All that it sends is a claim about what was returned."""

import contextlib
import os
import random
import re
import resource
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy
import torch

from course_lib.checking.call import Outcome, call
from course_lib.grading.notebook import execution
from course_lib.grading.notebook import program as notebook
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import frames, seccomp, wire
from course_lib.grading.sandbox.limits import own_memory

LIBRARY = Path(__file__).parents[2]
_STANDARD_LIBRARY = os.path.dirname(os.__file__)
TEXT = 2000  # characters of one message; a traceback may have five times as many
_READS = ("open", "import", "os.listdir", "os.scandir", "glob.glob")
_BELONGS_TO_THE_GRADER = re.compile(
    r"course_lib[./](lessons|grading)\b|(^|/)solutions(/|$)|^/proc/\d+/(environ|mem|maps|fd|root|cwd|cmdline)"
)


class Channel:
    """The way out to the warden. Threads may share it."""

    def __init__(self, pipe: int, index: int):
        self.pipe, self.index, self.lock = pipe, index, threading.RLock()

    def send(self, kind: bytes, value: Any = None, bounds: wire.Bounds | None = None) -> None:
        content = frames.pack(kind, self.index, wire.dumps(value, bounds or wire.Bounds()))
        with self.lock:
            while content:
                content = content[os.write(self.pipe, content) :]


def run(content: bytes, index: int, task: Task, limits: Limits, pipe: int, no_memory: int) -> NoReturn:
    """Everything that this process does; it never returns to the warden's code.

    Args:
        no_memory: the exit code by which the warden knows that memory ran out.
    """
    code, leave = 1, os._exit  # which the student's code may replace
    try:
        confine(limits, pipe)
        _answer(content, task, limits, Channel(pipe, index))
        code = 0
    except MemoryError:
        code = no_memory
    finally:
        leave(code)


def confine(limits: Limits, pipe: int) -> None:
    """Give up whatever a function that calculates does not need. Nothing of it can be taken back."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    space, data, resident = own_memory()
    more = max(limits.memory_bytes - resident, 2**26)  # so that MemoryError comes before the warden does
    limit("AS", space + more)
    limit("DATA", data + more)
    limit("CPU", int(limits.seconds) + 2)
    limit("FSIZE", limits.file_bytes)
    limit("NOFILE", 256)
    limit("CORE", 1)  # not 0: a program that collects crashes is still handed all of the memory then
    if counts_processes():
        limit("NPROC", limits.processes)
    os.nice(5)  # the warden comes first
    seccomp.hide(False)  # so that the warden can count this process's memory
    seccomp.forbid()


def limit(name: str, most: int) -> None:
    """Set a limit where the platform has it and allows it."""
    kind = getattr(resource, f"RLIMIT_{name}", None)
    if kind is not None:
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def counts_processes() -> bool:
    """Whether RLIMIT_NPROC counts the sandbox alone: since Linux 5.14, before that all that the user runs."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return os.getppid() == 1 and version is not None and tuple(map(int, version.groups())) >= (5, 14)


def _answer(content: bytes, task: Task, limits: Limits, channel: Channel) -> None:
    try:
        program = notebook.load(content).program(task.exercise, task.function)
    except LookupError as error:
        return channel.send(frames.UNUSABLE, ("not found", str(error.args[0])[:TEXT]))
    except Exception as error:  # the reader's own words, or whatever a parser does with such a notebook
        reason = (
            str(error) if isinstance(error, ValueError) else f"the notebook cannot be read ({type(error).__name__})."
        )
        return channel.send(frames.UNUSABLE, ("not loaded", reason[:TEXT]))
    facts = (program.notes, program.code[: 20 * TEXT], program.uses, program.only_calls)
    channel.send(frames.PROGRAM, facts)
    function, notes = _load(program, channel, limits.call_seconds)
    if not callable(function):
        reason = f"{program.function} could not be loaded: {'; '.join(notes) or 'it is no function'}"
        return channel.send(frames.UNUSABLE, ("not loaded", reason[:TEXT]))
    for note in notes:
        channel.send(frames.NOTE, note)
    for arguments in task.arguments:
        outcome = _outcome(function, arguments, limits.call_seconds)
        _send_outcome(channel, outcome, limits)
        if outcome.endless:
            break
    channel.send(frames.DONE)


def _load(program: notebook.Program, channel: Channel, seconds: float) -> tuple[Any, list[str]]:
    """Run the statements, each by itself and for so long. Returns the function, and what went wrong on the way."""
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    sys.addaudithook(_watcher(channel))
    return execution.load(program, seconds)


def _outcome(function: Callable, arguments: tuple, seconds: float) -> Outcome:
    try:
        return call(function, arguments, seconds)
    except BaseException as error:
        return Outcome(error=f"it raised {execution.said(error)}")


def _send_outcome(channel: Channel, outcome: Outcome, limits: Limits) -> None:
    error = outcome.error and outcome.error[:TEXT]
    rest = (error, outcome.unattempted, outcome.endless, outcome.trace[-5 * TEXT :])
    try:
        channel.send(frames.CASE, (outcome.value, *rest), wire.Bounds(n_bytes=limits.result_bytes))
    except Exception as problem:
        message = f"it returned what cannot be compared: {execution.said(problem)}"
        channel.send(frames.CASE, (None, message, False, False, ""))


def _watcher(channel: Channel) -> Callable:
    """An audit hook that tells what the student's code opens or imports of the grader's; a signal, not a wall."""
    reported: set[str] = set()

    def hook(event: str, arguments: tuple) -> None:
        if event not in _READS or not arguments or len(reported) >= 16:
            return
        with contextlib.suppress(Exception):
            name = os.fsdecode(arguments[0])[:200]
            if name not in reported and _BELONGS_TO_THE_GRADER.search(name) and _from_outside(sys._getframe(1)):
                reported.add(name)
                channel.send(frames.TOUCHED, name)

    return hook


def _from_outside(frame: types.FrameType | None) -> bool:
    """Whether the library itself is not the one that asks, be it by way of Python's own modules."""
    while frame is not None and not frame.f_code.co_filename.startswith(str(LIBRARY)):
        if not frame.f_code.co_filename.startswith(("<frozen importlib", f"{_STANDARD_LIBRARY}{os.sep}")):
            return True
        frame = frame.f_back
    return frame is None
