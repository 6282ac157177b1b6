"""One process at a time: watched, ended with all that it started, its messages passed on.

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

LOOK = 0.02  # seconds between two looks at memory and processes
EARLY = 0.8  # of its limit on processor time: the kernel counts in ticks, and on a busy machine it kills before
Take = Callable[[bytes, int, bytes], None]  # what is done with a message
Act = Callable[[int, int], None]  # what a process does, with the pipe to here and the one from here


@dataclass(frozen=True)
class End:
    """How a process ended.

    Args:
        how: "done", "channel", "time", "waiting", "memory", "processes", "files", "exit", "signal" or "killed".
        number: of an exit's code or a signal, else 0.
        seconds: that count; see `call.counted`.
        clean: whether nothing is left of it.
    """

    how: str
    number: int
    seconds: float
    clean: bool


@dataclass
class Round:
    """The task of one process, what it may send, and for how long.

    Args:
        source: where the giver of the job is heard; when that is closed, the round is over.
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
        """Fork, let it act, and attend to it until nothing is left of it."""
        (self.pipe, theirs), (way_in, self.way_in) = os.pipe(), os.pipe()
        self.no_memory = 64 + secrets.randbelow(128)  # the exit code that says so; students' code cannot guess it
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
            if how := self._forward():  # first, for what it had sent before it ended
                return how, 0
            if status is not None:
                return self._ended(status)
            if how := self._broken():
                return how, 0

    def _forward(self) -> str:
        """Pass on what has come; after the end of the process, that is all there is."""
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
        """Take the messages that these bytes complete. How the process ends with them: "done", "channel", or ""."""
        try:
            for message in self.reader.feed(data):
                if message[0] == frames.HIDDEN:
                    self._request_once()
                self.take(*message)
                if message[0] == frames.HIDDEN:  # the outside answers every request that it gets, so this has an end
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
        """With what the process has ended; None while it goes on.

        Linux tells the limits of a process that has ended until its parent has waited for it.
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
        """Which limit is broken, "" while none is."""
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
    """How a process ended that a signal has ended: "time", "killed" (from outside), or "signal".

    Args:
        calculated: seconds of the processor that it had.
        seconds: those that it may have.
        granted: those after which the kernel should kill it; allowed: after which it does. Only the process itself
            lowers that limit, and then it cannot claim that something else killed it.
    """
    if number == signal.SIGKILL:
        return "time" if allowed < granted or calculated >= min(seconds, EARLY * granted) else "killed"
    return "time" if number == signal.SIGXCPU and calculated >= seconds else "signal"


def _most(limits: tuple[int, int]) -> float:
    """The hard limit of a soft and a hard one; infinity for none."""
    return math.inf if limits[1] == resource.RLIM_INFINITY else float(limits[1])


def _of_children() -> float:
    """Seconds of the processor of all processes that this one started and that are gone."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
