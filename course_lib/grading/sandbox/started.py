"""Start and end the processes of the sandbox, from outside of it.

If the kernel allows it, one sandbox runs job after job, each in namespaces of its own; it imports
torch once. Otherwise every job has its own sandbox, in which Python starts again.
"""

import atexit
import os
import select
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from course_lib.grading.records import Limits
from course_lib.grading.sandbox import bubblewrap
from course_lib.grading.sandbox.warden import GONE

GRACE = 20.0  # seconds until a process that should have ended is killed
TEXT = 4000  # bytes of the sandbox's error messages
_WARDEN = ("-m", "course_lib.grading.sandbox.warden")


@dataclass(frozen=True)
class Pipes:
    """The three pipes of one job: for input, results, and error messages."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


@contextmanager
def job(limits: Limits, kind: str) -> Iterator[Pipes]:
    """Start a warden that waits for a job; on exit, kill all that it started."""
    mode = bubblewrap.variant()[0] if kind == "bwrap" else "none"
    with _in_shared(limits) if mode == "shared" else _in_its_own(limits, mode) as pipes:
        yield pipes


@contextmanager
def _in_its_own(limits: Limits, mode: str) -> Iterator[Pipes]:
    environment, line = bubblewrap.ENVIRONMENT, [*bubblewrap.python(), *_WARDEN]
    with tempfile.TemporaryDirectory(prefix="course-") as home:
        if mode == "none":
            environment = environment | {"HOME": home}
        else:
            line = bubblewrap.command(limits, mode) + line
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(line, env=environment, cwd=home, start_new_session=True, **pipes)
        try:
            yield Pipes(process.stdin, process.stdout, process.stderr)
        finally:
            _end(process, mode)


def _end(process: subprocess.Popen, mode: str) -> None:
    """Kill the sandbox: with bubblewrap, killing the first process of the namespace kills all others."""
    process.stdin.close()  # asks the warden to end what it runs, where nothing else would
    if mode == "none":
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    process.kill()
    process.wait()
    while select.select([process.stdout], [], [], GRACE)[0] and os.read(process.stdout.fileno(), 2**16):
        pass  # it ends after the last process that could write to it
    process.stdout.close()
    process.stderr.close()


class Server:
    """A sandbox that takes one job after another.

    Args:
        errors: receives its error messages if it does not start.
    """

    def __init__(self, errors: int) -> None:
        self.thread = threading.current_thread()  # when this closes, the kernel ends the sandbox
        self.control, theirs = socket.socketpair()
        line = [*bubblewrap.command(Limits(), "shared"), *bubblewrap.python(), *_WARDEN, "shared"]
        pipes = {"stdin": theirs, "stdout": subprocess.DEVNULL, "stderr": errors}
        self.process = subprocess.Popen(line, env=bubblewrap.ENVIRONMENT, cwd="/", start_new_session=True, **pipes)
        theirs.close()

    def give(self, limits: Limits, pipes: list[int]) -> None:
        """Send the far ends of a job's pipes. If the server is gone they are closed, and the job has no answer."""
        with suppress(OSError):
            socket.send_fds(self.control, [limits.file_bytes.to_bytes(8, "big")], pipes)

    def is_free(self) -> bool:
        """Check whether the server reports in time that nothing is left of its job."""
        self.control.settimeout(GRACE)
        with suppress(OSError):
            return self.control.recv(len(GONE)) == GONE
        return False

    def end(self) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


_waiting: list[Server] = []  # as many as jobs ran at the same time; they end with this process
_lock = threading.Lock()


@contextmanager
def _in_shared(limits: Limits) -> Iterator[Pipes]:
    (source, stdin), (stdout, out), (stderr, errors) = os.pipe(), os.pipe(), os.pipe()
    pipes, free = Pipes(os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)), False
    try:
        server = _taken() or Server(errors)
        server.give(limits, [source, out, errors])
    except BaseException:
        pipes.close()
        raise
    finally:
        for theirs in (source, out, errors):
            os.close(theirs)
    try:
        yield pipes
        pipes.stdin.close()  # asks the warden to end what it runs
        free = server.is_free()
    finally:
        pipes.close()
        _waiting.append(server) if free else server.end()


def _taken() -> Server | None:
    """Return a waiting server that this thread started: the kernel ends a sandbox with the thread that started it."""
    with _lock:
        for ended in [server for server in _waiting if server.process.poll() is not None]:
            _waiting.remove(ended)
            ended.end()
        own = [server for server in _waiting if server.thread is threading.current_thread()]
        if own:
            _waiting.remove(own[-1])
        return own[-1] if own else None


@atexit.register
def close() -> None:
    """End the sandboxes that wait for a job."""
    while _waiting:
        _waiting.pop().end()
