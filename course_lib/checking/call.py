"""Call a student's function once: with copies of the arguments, a time limit, and every outcome as plain data.

This module does not need the exercises, so a process that runs an untrusted function does not need their answers.
"""

import copy
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import plain

LIMIT = 20.0  # seconds of the processor for one call
TOGETHER = 60.0  # for the calls on all cases of one check
WAITING = 2  # wall-clock seconds that count as one of the processor, for a call that waits instead of calculating
AT_MOST = 20  # as many that do so however busy the machine is


class DidNotFinish(BaseException):
    """A call exceeded the time limit. It is not an Exception, so a student's `except Exception` does not catch it.

    A named mistake with an endless loop raises it directly.
    """


@dataclass(frozen=True)
class Outcome:
    """The outcome of a function on one case: a plain value, or the error that ended it."""

    value: Any = None
    error: str | None = None
    unattempted: bool = False
    endless: bool = False
    trace: str = ""


@dataclass(frozen=True)
class Recorded:
    """Stored results of a function on each case of one seed; a student's copy has them instead of the function."""

    outcomes: tuple[Outcome, ...]


def starved(process: str = "thread-self", proc: Path = Path("/proc")) -> float:
    """Seconds in which this process waited for a processor that others used; 0 if the kernel does not report it."""
    try:  # twice a call, so by the system's own calls, a fifth of the time
        handle = os.open(f"{proc}/{process}/schedstat", os.O_RDONLY)
        try:
            return int(os.read(handle, 100).split()[1]) / 1e9
        finally:
            os.close(handle)
    except (OSError, ValueError, IndexError):
        return 0.0


def counted(calculated: float, passed: float, waited: float) -> float:
    """Compute the seconds that count towards a limit: they depend on the answer, not on the load of the machine.

    Args:
        calculated: processor seconds. Usually only these count.
        passed: wall-clock seconds. They also count, with less weight, to end a call that sleeps forever.
        waited: wall-clock seconds in which the process was ready but other processes had the processors.
    """
    return max(calculated, (passed - waited) / WAITING, passed / AT_MOST)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise DidNotFinish after so many counted seconds, if the system has an alarm and this is the main thread."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    began, waited, calculated = time.monotonic(), starved(), time.thread_time()

    def ring(*_) -> None:
        left = seconds - counted(time.thread_time() - calculated, time.monotonic() - began, starved() - waited)
        if left < 0.1 * seconds:
            raise DidNotFinish
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01), 1)

    handler = signal.signal(signal.SIGALRM, ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # and every second after, for a bare `except:`
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        _go_on(*others, time.monotonic() - began)


def _go_on(left: float, again: float, passed: float) -> None:
    """Set the alarm of an outer limit again, minus the time spent inside; raise it now if no time is left."""
    if not left or left > passed:
        signal.setitimer(signal.ITIMER_REAL, max(left - passed, 0.0), again)
    else:
        signal.setitimer(signal.ITIMER_REAL, again, again)
        signal.raise_signal(signal.SIGALRM)


def calls(
    function: Callable,
    cases: Iterable[tuple],
    seconds: float | None = None,
    together: float = TOGETHER,
    once: Callable[[Callable, tuple, float], Outcome] | None = None,
) -> Iterator[Outcome]:
    """Call a function on one case after another, until a call does not finish.

    Args:
        seconds: limit of one call, LIMIT for None; together: limit of all calls.
        once: makes a single call, `call` for None.
    """
    seconds, left = LIMIT if seconds is None else seconds, together
    for arguments in cases:
        began = time.thread_time()
        outcome = (once or call)(function, arguments, min(seconds, max(left, 0.01)))
        if outcome.endless and left < seconds:
            message = f"it did not finish: all cases together have {together:g} seconds, and those before took most."
            outcome = replace(outcome, error=message)
        yield outcome
        if outcome.endless:
            return
        left -= time.thread_time() - began


def copied(value: Any, memo: dict) -> Any:
    """Copy like `copy.deepcopy`, in a sixth of the time for the usual contents of cases: tensors, tuples and numbers.

    Args:
        memo: earlier copies by identity, as in `deepcopy`, so that an object that occurs twice is copied once.
    """
    if id(value) in memo:
        return memo[id(value)]
    if type(value) is tuple:
        copy_of = tuple(copied(item, memo) for item in value)
    elif type(value) is Tensor and value.layout == torch.strided and value.is_contiguous() and not value.requires_grad:
        copy_of = value.clone()
    else:
        return copy.deepcopy(value, memo)
    memo[id(value)] = copy_of
    return copy_of


def call(function: Callable, arguments: tuple, seconds: float | None = None) -> Outcome:
    """Call a function on copies of its arguments. If it raises an error, the error becomes the outcome.

    Args:
        seconds: processor seconds that it may take; LIMIT for None.
    """
    seconds = LIMIT if seconds is None else seconds
    try:
        arguments = copied(arguments, {})
        with limited(seconds):
            returned = function(*arguments)
    except NotImplementedError as error:
        return Outcome(error=f"it raised NotImplementedError: {error}", unattempted=True)
    except DidNotFinish as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        message = f"it did not finish within {seconds:g} seconds: does the loop end?"
        return Outcome(error=message, endless=True, trace="".join(["It was here:\n", *traceback.format_list(frames)]))
    except (Exception, SystemExit) as error:
        # The first frame belongs to this file; what follows is the student's own code.
        frames = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
        return Outcome(error=f"it raised {type(error).__name__}: {error}", trace="".join(frames))
    try:
        return Outcome(value=plain(returned))
    except Exception as error:
        return Outcome(error=f"it returned what cannot be compared: {error}")
