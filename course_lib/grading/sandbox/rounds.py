"""Run one process at a time: watch it, pass its messages on, and kill it with all that it started.

This code never looks into a notebook or an answer; it copies messages whose length it has checked.
"""

import math
import os
import resource
import secrets
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from course_lib.checking.call import counted
from course_lib.grading.records import Limits
from course_lib.grading.sandbox import child, frames, sealed
from course_lib.grading.sandbox import limits as watch

LOOK = 0.02  # seconds between two checks of memory and processes
EARLY = 0.8  # of its limit on processor time: the kernel counts in ticks, and on a busy machine it kills too early
Take = Callable[[bytes, int, bytes], None]  # called with a message
Act = Callable[[int, int], None]  # the work of a process, with the pipe to the warden and the pipe from it


@dataclass(frozen=True)
class End:
    """How a process ended.

    Args:
        how: "done", "channel", "time", "waiting", "memory", "processes", "files", "exit", "signal" or "killed".
        number: the exit code or the signal, else 0.
        seconds: the time that counts; see `call.counted`.
        clean: whether no process and no file of it is left.
    """

    how: str
    number: int
    seconds: float
    clean: bool


@dataclass
class Round:
    """The work of one process, the messages that it may send, and its time limit.

    Args:
        source: the pipe from the process that gave the job; when that is closed, the round is over.
        kinds, n_messages: what it may send.
        take: called with every message.
        kept: what may stay in /tmp.
    """

    source: int
    kinds: frozenset[bytes]
    n_messages: int
    take: Take
    limits: Limits
    kept: set[str]

    def __post_init__(self) -> None:
        self.reader = frames.Reader(self.kinds, frames.most_bytes(self.limits.result_bytes), self.n_messages)
        self.has_asked = False
        inherited = _most(resource.getrlimit(resource.RLIMIT_CPU))
        self.granted = self.allowed = min(float(child.most_of_processor(self.limits)), inherited)

    def run(self, act: Act) -> End:
        """Fork, let the child act, and serve it until nothing is left of it."""
        (self.pipe, theirs), (way_in, self.way_in) = os.pipe(), os.pipe()
        self.no_memory = 64 + secrets.randbelow(128)  # the exit code for no memory; students' code cannot guess it
        before = _of_children()
        self.process = os.fork()
        if self.process == 0:
            child.run(partial(act, theirs, way_in), self.limits, tuple(sorted((theirs, way_in))), self.no_memory)
        os.close(theirs), os.close(way_in)
        self.clock, self.looked, self.counts, self.open = watch.Stopwatch(), 0.0, 0.0, True
        for ours in (self.pipe, self.way_in):  # neither an empty nor a full pipe may block the warden
            os.set_blocking(ours, False)
        try:
            how, number = self._attend()
            clean = watch.rest_is_gone(self.process, self.kept)
        except EOFError:  # the outside is gone
            watch.rest_is_gone(self.process, set())
            raise SystemExit("The job was given up.") from None
        finally:
            os.close(self.pipe), os.close(self.way_in)
        calculated = _of_children() - before
        if how == "signal":
            how = by_signal(number, calculated, self.limits.seconds, self.granted, self.allowed)
        return End(how, number, max(calculated, self.counts), clean)

    def _attend(self) -> tuple[str, int]:
        while True:
            waited_for = [self.source, self.pipe] if self.open else [self.source]
            ready = select.select(waited_for, [], [], LOOK)[0]
            if self.source in ready and sealed.is_at_end(self.source):
                raise EOFError
            status = self._status()
            if how := self._forward():  # first, for messages that were sent before the end
                return how, 0
            if status is not None:
                return self._ended(status)
            if how := self._broken():
                return how, 0

    def _forward(self) -> str:
        """Pass on the messages that have arrived; after the end of the process, these are all."""
        try:
            while data := os.read(self.pipe, 2**16):
                if how := self.pass_on(data):
                    return how
                if len(data) < 2**16:
                    return ""
            self.open = False
        except BlockingIOError:
            pass
        return ""

    def pass_on(self, data: bytes) -> str:
        """Pass on the messages that these bytes complete. Return how the process ends: "done", "channel", or ""."""
        try:
            for message in self.reader.feed(data):
                if message[0] == frames.HIDDEN:
                    self._request_once()
                self.take(*message)
                if message[0] == frames.HIDDEN:  # the outside answers every request that it gets, so this wait ends
                    sealed.hand_over(self.source, self.way_in)
                if message[0] == frames.DONE or (message[0] == frames.UNUSABLE and frames.CODE not in self.kinds):
                    return "done"
        except ValueError:
            return "channel"
        return ""

    def _request_once(self) -> None:
        if self.has_asked:
            raise ValueError("got a second request for the key; expected one.")
        self.has_asked = True

    def _status(self) -> int | None:
        """Return the status with which the process ended, or None while it runs.

        Linux reports the limits of a process that has ended until its parent has waited for it.
        """
        if hasattr(resource, "prlimit"):
            if os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            with suppress(OSError):
                self.allowed = _most(resource.prlimit(self.process, resource.RLIMIT_CPU))
        ended, status = os.waitpid(self.process, os.WNOHANG)
        return status if ended else None

    def _ended(self, status: int) -> tuple[str, int]:
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        code = os.waitstatus_to_exitcode(status)
        return ("memory" if code == self.no_memory else "exit"), code

    def _broken(self) -> str:
        """Return the limit that is exceeded, or ""."""
        passed, now = self.clock.tick(), time.monotonic()
        if now - self.looked < LOOK:
            return ""
        self.looked = now
        calculated = watch.calculated(self.process)
        waited = watch.starved(self.process) if passed > self.limits.seconds else 0.0
        self.counts = counted(calculated, passed, waited) if passed > self.limits.seconds else calculated
        if self.counts > self.limits.seconds:
            return "time" if calculated > 0.9 * self.limits.seconds else "waiting"
        return watch.broken(self.process, self.limits)


def by_signal(number: int, calculated: float, seconds: float, granted: float, allowed: float) -> str:
    """Return how a process ended that a signal has killed: "time", "killed" (from outside), or "signal".

    Args:
        calculated: processor seconds that it used.
        seconds: processor seconds that it may use.
        granted: those after which the kernel should kill it; allowed: after which it does. Only the process itself
            lowers that limit, and then it cannot claim that something else killed it.
    """
    if number == signal.SIGKILL:
        return "time" if allowed < granted or calculated >= min(seconds, EARLY * granted) else "killed"
    return "time" if number == signal.SIGXCPU and calculated >= seconds else "signal"


def _most(limits: tuple[int, int]) -> float:
    """Return the hard limit of a soft and a hard one; infinity for none."""
    return math.inf if limits[1] == resource.RLIM_INFINITY else float(limits[1])


def _of_children() -> float:
    """Return the processor seconds of all children of this process that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
