"""Grade on this machine: several processes, each with one submission and its sandbox at a time."""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from course_lib.grading import engine
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import Result

Grade = Callable[[Submission, engine.Plan], Result]
DIED = f"{engine.FAILED}: grading it ended a process of the grader, twice. Look at it by hand."
PR_SET_PDEATHSIG = 1
_CONTEXT = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads


def default_jobs() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Worker:
    """One process that grades the submissions it receives, and its current submission.

    Recipes of the challenge are also measured in such a process, with other settings and another function.
    """

    def __init__(self, plan: Any, grade: Callable[[Any, Any], Any]) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(theirs, plan, grade), daemon=True)
        self.process.start()
        theirs.close()
        self.submission: Any = None

    def start(self, submission: Any) -> None:
        self.submission = submission
        with suppress(OSError):  # it died since the last submission; `finish` will notice
            self.connection.send(submission)

    def finish(self) -> Any:
        """Return the result, or None if the process died while it graded."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def grade_all(
    submissions: list[Submission], plan: engine.Plan, jobs: int, grade: Grade = engine.grade
) -> Iterator[tuple[Submission, Result]]:
    """Yield one result per submission, as soon as each is ready.

    One over which a process was ended, its sandbox or that which grades it, is tried once more at the end, with
    nothing else running that could take its memory; then it has rows that say so. Closing the iterator kills the
    processes, and with them their sandboxes.
    """
    waiting, again, alone, workers = list(reversed(submissions)), [], False, []
    try:
        while True:
            busy = [worker for worker in workers if worker.submission is not None]
            if not waiting and not busy:
                waiting, again, alone = list(reversed(again)), [], True
            while waiting and len(busy) < (1 if alone else max(1, jobs)):
                free = [worker for worker in workers if worker.submission is None]
                if not free:
                    free.append(Worker(plan, grade))
                    workers.append(free[0])
                free[0].start(waiting.pop())
                busy.append(free[0])
            if not busy:
                return
            ready = wait([worker.connection for worker in busy])
            for worker in [answering for answering in busy if answering.connection in ready]:
                submission, result = worker.submission, worker.finish()
                worker.submission = None
                if result is None:
                    worker.stop()
                    workers.remove(worker)
                if not alone and (result is None or engine.was_lost(result)):
                    again.append(submission)
                else:
                    yield submission, result or engine.unreadable(submission, plan, DIED, grader_failed=True)
    finally:
        for worker in workers:
            worker.stop()


def _serve(connection: Connection, plan: Any, grade: Callable[[Any, Any], Any]) -> None:
    """Run in a worker process: grade submissions and send the results, until no more come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops everything in order
    _die_with_the_parent()
    torch.set_num_threads(1)
    while True:
        try:
            submission = connection.recv()
        except EOFError:
            return
        try:
            result = grade(submission, plan)
        except Exception as error:  # a defect of the grader must not cost the class its grades
            result = engine.failed(submission, plan, error)
        connection.send(result)


def _die_with_the_parent() -> None:
    """Make this process end when its parent ends, even by kill -9: sandboxes must not survive. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not multiprocessing.parent_process().is_alive():  # the parent ended before the signal was requested
            os._exit(1)
