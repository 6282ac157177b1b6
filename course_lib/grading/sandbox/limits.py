"""Limit the resources of all processes of one exercise together. Kernel limits count one process, and not for root."""

import contextlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from course_lib.checking import call
from course_lib.grading.records import Limits

FILES = 10_000  # in the sandbox's /tmp: an empty file costs the kernel about a kilobyte
PATIENCE = 10.0  # seconds that killed processes may take to free their memory
STEP = 1.0  # the most seconds that one reading adds, since the whole machine may have been suspended


@dataclass
class Stopwatch:
    """A clock that counts only the time during which it is read regularly."""

    seconds: float = 0.0
    last: float | None = None

    def tick(self) -> float:
        """Return the seconds so far."""
        now = time.monotonic()
        self.seconds += 0.0 if self.last is None else min(now - self.last, STEP)
        self.last = now
        return self.seconds


def alone() -> bool:
    """Check whether this process is the first of its own process namespace, so that it may kill all others there."""
    return os.getpid() == 1


def others(session: int, proc: Path = Path("/proc")) -> list[list[str]]:
    """Return the fields of /proc/N/stat after the name, with N in front: for all other processes, or for a session.

    In a sandbox for many submissions /proc belongs to the sandbox: its first process is not of this submission, and
    process numbers there differ from the numbers in this process's own namespace.
    """
    processes, aside = [], {"1", _own_number()} if alone() else {_own_number()}
    for name in os.listdir(proc) if proc.exists() else ():
        if name.isdecimal() and name not in aside:
            try:
                # A process may use any bytes as its name.
                fields = (proc / name / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if alone() or int(fields[3]) == session:
                processes.append([name, *fields])
    return processes


def _own_number() -> str:
    """Return the number of this process in /proc."""
    return os.readlink("/proc/self") if os.path.lexists("/proc/self") else str(os.getpid())


def starved(session: int) -> float:
    """Return the seconds in which the process of an exercise was ready to run, but other processes had the processors.

    Processes that it started do not count: they could make each other wait.
    """
    return min((call.starved(fields[0]) for fields in others(session) if fields[2] == _own_number()), default=0.0)


def calculated(session: int) -> float:
    """Return the processor seconds of all processes of an exercise, and of their children that have ended."""
    ticks = sum(sum(map(int, fields[12:16])) for fields in others(session))
    return ticks / os.sysconf("SC_CLK_TCK")


def broken(session: int, limits: Limits) -> str:
    """Return the limit that the processes of an exercise exceed: "processes", "memory", "files", or "" for none."""
    processes = others(session)
    if sum(int(fields[18]) for fields in processes) > limits.processes:
        return "processes"
    resident = [int(fields[22]) * os.sysconf("SC_PAGESIZE") for fields in processes]
    if sum(resident) > limits.memory_bytes:
        exact = sum(_proportional(fields[0], most) for fields, most in zip(processes, resident, strict=True))
        if exact > limits.memory_bytes:
            return "memory"
    if alone():
        space = os.statvfs("/tmp")
        filled = (space.f_blocks - space.f_bfree) * space.f_frsize  # older versions of bubblewrap set no size
        if space.f_files - space.f_ffree > FILES or filled > limits.file_bytes:
            return "files"
    return ""


def _proportional(process: str, otherwise: int) -> int:
    """Return bytes of memory, with memory shared with the warden in proportion; all of it if the process hides."""
    try:
        lines = Path("/proc", process, "smaps_rollup").read_text("ascii", "replace").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):
        return otherwise


def rest_is_gone(process: int, kept: set[str]) -> bool:
    """Kill an exercise and all it started. Return whether no process is left, and /tmp has only the files to keep."""
    if not alone():
        for kill in (os.killpg, os.kill):  # the session that it leads, or would lead
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
        return True
    patience = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        _reap()
        if not others(process):
            return _empty("/tmp", kept)
        if time.monotonic() > patience:
            return False
        time.sleep(0.001)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _empty(folder: str, kept: set[str]) -> bool:
    try:
        for entry in [entry for entry in os.scandir(folder) if entry.name not in kept]:
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        return set(os.listdir(folder)) == kept
    except (OSError, RecursionError):  # it may have removed all permissions
        return False


def own_memory() -> tuple[int, int, int]:
    """Return the bytes of this process's address space, data and resident memory; a fork inherits them."""
    if sys.platform != "linux":
        return 0, 0, 0
    fields = [int(field) * os.sysconf("SC_PAGESIZE") for field in Path("/proc/self/statm").read_text("ascii").split()]
    return fields[0], fields[5], fields[1]
