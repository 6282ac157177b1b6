"""Read a notebook and run a student's functions, each in its own process. All that these processes send is a claim."""

import contextlib
import math
import os
import pickle
import random
import re
import resource
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy
import torch
from torch import Tensor

from course_lib.checking.call import Outcome, call, calls
from course_lib.grading.notebook import execution
from course_lib.grading.notebook import program as notebook
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import frames, seccomp, wire
from course_lib.grading.sandbox.limits import own_memory
from course_lib.grading.sandbox.sealed import KEY_BYTES, unseal

LIBRARY = Path(__file__).parents[2]
_STANDARD_LIBRARY = os.path.dirname(os.__file__)
TEXT = 2000  # characters of one message; a traceback may have five times as many
_READS = ("open", "import", "os.listdir", "os.scandir", "glob.glob")
_BELONGS_TO_THE_GRADER = re.compile(
    r"course_lib[./](lessons|grading)\b|(^|/)solutions(/|$)|^/proc/\d+/(environ|mem|maps|fd|root|cwd|cmdline)"
)


def warm_up() -> None:
    """Import modules that load on first use, once for all processes that are forked afterwards."""
    _seed()
    wire.loads(wire.dumps(call(torch.matmul, (torch.ones(2, 2), torch.ones(2, 2))).value, wire.Bounds()), wire.Bounds())


def _seed() -> None:
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)


class Channel:
    """The channel to the warden. Threads may share it."""

    def __init__(self, pipe: int, index: int):
        self.pipe, self.index, self.lock = pipe, index, threading.RLock()

    def send(self, kind: bytes, value: Any = None, bounds: wire.Bounds | None = None) -> None:
        self.send_bytes(kind, wire.dumps(value, bounds or wire.Bounds()))

    def send_bytes(self, kind: bytes, content: bytes) -> None:
        content = frames.pack(kind, self.index, content)
        with self.lock:
            while content:
                content = content[os.write(self.pipe, content) :]


def read(content: bytes, asked: list[tuple[int, str, str]], pipe: int, _: int) -> None:
    """Read a notebook once for all of its exercises; no code of the notebook runs here.

    Args:
        asked: for each exercise its number, its id and the usual name of its function.
        pipe: the pipe to the warden.
    """
    channels = [Channel(pipe, index) for index, *_ in asked]
    try:
        book = notebook.load(content)
    except MemoryError:
        raise  # the warden reports it for all exercises
    except Exception as error:
        for channel in channels:
            channel.send(frames.UNUSABLE, ("not loaded", _why(error)))
        return channels[-1].send(frames.DONE)
    channels[0].send(frames.LOADED)
    for channel, (_, exercise, function) in zip(channels, asked, strict=True):
        try:
            program = book.program(exercise, function)
            facts = (program.notes, program.code[: 20 * TEXT], program.uses, program.only_calls)
            channel.send(frames.PROGRAM, facts)
            channel.send_bytes(frames.CODE, pickle.dumps(program))  # imported in a confined process too
        except LookupError as error:
            channel.send(frames.UNUSABLE, ("not found", str(error.args[0])[:TEXT]))
        except Exception as error:
            channel.send(frames.UNUSABLE, ("not loaded", _why(error)))
    channels[-1].send(frames.DONE)


def _why(error: Exception) -> str:
    """Return the reader's own message, or a general one for errors that a parser raises on such a notebook."""
    told = isinstance(error, ValueError)
    return (str(error) if told else f"the notebook cannot be read ({type(error).__name__}).")[:TEXT]


def run(act: Callable[[], None], limits: Limits, keep: tuple[int, ...], no_memory: int) -> NoReturn:
    """Do all the work of a process; never return to the warden's code.

    Args:
        keep: the open files that it keeps.
        no_memory: the exit code that tells the warden that memory ran out.
    """
    code, leave = 1, os._exit  # because the student's code may replace it
    try:
        confine(limits, keep)
        act()
        code = 0
    except MemoryError:
        code = no_memory
    finally:
        leave(code)


def confine(limits: Limits, keep: tuple[int, ...]) -> None:
    """Give up everything that a function does not need for computing. None of it can be reversed.

    Args:
        keep: all open files that remain, in their order.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for before, after in zip((2, *keep), (*keep, os.sysconf("SC_OPEN_MAX")), strict=True):
        os.closerange(before + 1, after)
    space, data, resident = own_memory()
    more = max(limits.memory_bytes - resident, 2**26)  # so that MemoryError is raised before the warden acts
    limit("AS", space + more)
    limit("DATA", data + more)
    limit("CPU", most_of_processor(limits))
    limit("FSIZE", limits.file_bytes)
    limit("NOFILE", 256)
    limit("CORE", 1)  # not 0: a program that collects crashes would still receive all of the memory
    if counts_processes():
        limit("NPROC", limits.processes)
    os.nice(5)  # the warden acts first
    seccomp.hide(False)  # so that the warden can count this process's memory
    seccomp.forbid()


def most_of_processor(limits: Limits) -> int:
    """Return the seconds after which the kernel kills a process. The warden acts first, even if the kernel is early."""
    return int(1.5 * limits.seconds) + 2


def limit(name: str, most: int) -> None:
    """Set a limit if the platform has it and allows it."""
    kind = getattr(resource, f"RLIMIT_{name}", None)
    if kind is not None:
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def counts_processes() -> bool:
    """Check whether RLIMIT_NPROC counts only the sandbox: since Linux 5.14. Before, it counts per user."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return os.getppid() == 1 and version is not None and tuple(map(int, version.groups())) >= (5, 14)


def answer(code: bytes, task: Task, sealed: Tensor, index: int, limits: Limits, pipe: int, key: int) -> None:
    """Run the function of one exercise on its cases.

    Args:
        code: the message that `read` sent.
        sealed: the hidden cases; `key` is the pipe on which their key arrives.
    """
    channel, program = Channel(pipe, index), pickle.loads(code)
    function, notes = _load(program, channel, limits.call_seconds)
    if not callable(function):
        reason = f"The function {program.function} could not be loaded: {'; '.join(notes) or 'it is no function'}"
        return channel.send(frames.UNUSABLE, ("not loaded", reason[:TEXT]))
    for note in notes:
        channel.send(frames.NOTE, note)
    finished = _run_cases(function, task.arguments, channel, limits)
    if finished and sealed.numel():
        channel.send(frames.HIDDEN)
        _run_cases(function, unseal(sealed, os.read(key, KEY_BYTES)), channel, limits)
    channel.send(frames.DONE)


def _run_cases(function: Callable, cases: tuple[tuple, ...], channel: Channel, limits: Limits) -> bool:
    """Run the function on the cases; return whether every call finished."""
    for outcome in calls(function, cases, limits.call_seconds, limits.calls_seconds, _outcome):
        _send_outcome(channel, outcome, limits)
        if outcome.endless:
            return False
    return True


def _load(program: notebook.Program, channel: Channel, seconds: float) -> tuple[Any, list[str]]:
    """Run the statements one by one, each with a time limit. Return the function, and the errors on the way."""
    _seed()
    sys.addaudithook(_watcher(channel))
    return execution.load(program, seconds, before=lambda: _stop_after(seconds))


def _outcome(function: Callable, arguments: tuple, seconds: float) -> Outcome:
    try:
        _stop_after(seconds)
        return call(function, arguments, seconds)
    except BaseException as error:
        return Outcome(error=f"it raised {execution.said(error)}")


def _stop_after(seconds: float) -> None:
    """Set the kernel's limit, a little after that of `limited`: alarms do not stop a loop inside one instruction."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(time.process_time() + seconds) + 2
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _send_outcome(channel: Channel, outcome: Outcome, limits: Limits) -> None:
    error = outcome.error and outcome.error[:TEXT]
    rest = (error, outcome.unattempted, outcome.endless, outcome.trace[-5 * TEXT :])
    try:
        channel.send(frames.CASE, (outcome.value, *rest), wire.Bounds(n_bytes=limits.result_bytes))
    except Exception as problem:
        message = f"it returned what cannot be compared: {execution.said(problem)}"
        channel.send(frames.CASE, (None, message, False, False, ""))


def _watcher(channel: Channel) -> Callable:
    """Make an audit hook that reports when student code opens or imports files of the grader; not a barrier."""
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
    """Check whether the request comes from outside of the library, ignoring frames of Python's own modules."""
    while frame is not None and not frame.f_code.co_filename.startswith(str(LIBRARY)):
        if not frame.f_code.co_filename.startswith(("<frozen importlib", f"{_STANDARD_LIBRARY}{os.sep}")):
            return True
        frame = frame.f_back
    return frame is None
