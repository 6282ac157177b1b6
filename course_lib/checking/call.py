"""Call a student's function once: copies of the arguments, a time limit, and whatever happens as plain data.

It needs nothing of the exercises, so that a process which runs a stranger's function can do without their answers.
"""

import copy
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.checking.compare import plain

LIMIT = 20.0  # seconds for one call
AT_MOST = 10  # times the limit, and it ends however busy the machine is


class DidNotFinish(BaseException):
    """A call ran past the limit. No Exception, so that a student's `except Exception` does not hold it up.

    A named mistake whose loop never ends raises it at once.
    """


@dataclass(frozen=True)
class Outcome:
    """What a function did on one case: a plain value, or the error it ended in."""

    value: Any = None
    error: str | None = None
    unattempted: bool = False
    endless: bool = False
    trace: str = ""


@dataclass(frozen=True)
class Recorded:
    """What a function did on each case of one seed, in place of the function: a student's copy holds no answers."""

    outcomes: tuple[Outcome, ...]


def starved(process: str = "thread-self", proc: Path = Path("/proc")) -> float:
    """Seconds in which a process could have run but others had the processors; 0 where the kernel does not tell."""
    try:
        return int((proc / process / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise DidNotFinish after so many seconds, where the platform has an alarm and this is the main thread.

    Seconds in which a busy machine did not let it run do not count: whether an answer is in time depends on the answer.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    began, waited = time.monotonic(), starved()

    def ring(*_) -> None:
        passed = time.monotonic() - began
        if passed - (starved() - waited) > 0.9 * seconds or passed > AT_MOST * seconds:
            raise DidNotFinish

    handler = signal.signal(signal.SIGALRM, ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # and every second after, for a bare `except:`
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        _go_on(*others, time.monotonic() - began)


def _go_on(left: float, again: float, passed: float) -> None:
    """Set the alarm of a limit around this one, less what has passed inside; ring at once where that was all."""
    if not left or left > passed:
        signal.setitimer(signal.ITIMER_REAL, max(left - passed, 0.0), again)
    else:
        signal.setitimer(signal.ITIMER_REAL, again, again)
        signal.raise_signal(signal.SIGALRM)


def call(function: Callable, arguments: tuple, seconds: float | None = None) -> Outcome:
    """Call a function on copies of its arguments. Whatever it raises becomes part of the outcome.

    Args:
        seconds: that it may take; LIMIT for None.
    """
    seconds = LIMIT if seconds is None else seconds
    try:
        arguments = copy.deepcopy(arguments)
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
