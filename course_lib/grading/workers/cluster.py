"""Grade on a Dask cluster: notebooks are read here and sent as bytes; the workers never see the folder.

The user starts the cluster: `dask scheduler` and `dask worker` by hand, or dask-jobqueue for Slurm.
Each worker needs bubblewrap and this version of the course. A worker grades in a thread, where the comparison has no
time limit of its own; the limits of the sandbox apply as on one machine.
"""

import gc
import hashlib
import importlib
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from course_lib.grading import engine
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import Result
from course_lib.grading.sandbox import session

CONNECT_SECONDS = 10
WORKER_SECONDS = 60  # seconds to wait for the first worker
MOST_DEATHS = 5  # rounds of requests in which workers die, before we give up
PAUSE_SECONDS = 1.0  # between two rounds, so that the scheduler notices which workers are gone and which are new
AHEAD = 2  # notebooks sent or being graded for each thread of the cluster: all of a class would fill the memory
COURSE = Path(__file__).parents[1]
DECIDES = ("checking", "lessons", "grading", "workbook")  # folders of the course on which points depend


def grade_all(submissions: list[Submission], plan: engine.Plan, address: str) -> Iterator[tuple[Submission, Result]]:
    """Yield one result per submission, as soon as each is ready.

    A worker that dies costs time and nothing else: the scheduler gives what it had to others. A submission over which
    several workers died, or whose sandbox was ended from outside, is tried once more at the end, with nothing else
    running that could be the cause; if that happens again, it has rows that say so. Closing the iterator cancels all
    tasks that were sent.

    Raises:
        ValueError: if the cluster cannot be reached or used; the message says what to do.
    """
    distributed = _distributed()
    with _connected(distributed, address) as client, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # a notebook full of figures
        _check_workers(client, plan)
        waiting, running, suspects, alone = list(reversed(submissions)), {}, [], False
        done = distributed.as_completed(loop=client.loop)
        try:
            while waiting or running or suspects:
                if not waiting and not running:
                    waiting, suspects, alone = suspects, [], True
                n_at_once = 1 if alone else max(1, AHEAD * sum(client.nthreads().values()))
                while waiting and len(running) < n_at_once:
                    submission = waiting.pop()
                    content = _read(submission)
                    if isinstance(content, str):
                        yield submission, engine.unreadable(submission, plan, content)
                        continue
                    future = client.submit(grade, submission, content, plan, fingerprint(), pure=False)
                    running[future] = submission
                    done.add(future)
                if running:
                    future = next(done)
                    submission = running.pop(future)
                    if not alone and _killed(distributed, future):
                        suspects.append(submission)
                        continue
                    result = _result(distributed, future, submission, plan)
                    if not alone and engine.was_lost(result):
                        suspects.append(submission)
                    else:
                        yield submission, result
        finally:
            client.cancel(list(running))


def grade(submission: Submission, content: bytes, plan: engine.Plan, course: str) -> Result:
    """Grade one submission on a worker.

    Raises:
        RuntimeError: if this worker, which may have joined late, cannot grade. The submission is not to blame.
    """
    if problem := unfit(plan.kind, course):
        raise RuntimeError(problem)
    torch.set_num_threads(1)
    try:
        return engine.grade_content(submission, content, plan)
    except Exception as error:  # a defect of the grader must not cost the class its grades
        return engine.failed(submission, plan, error)


@lru_cache
def unfit(kind: str, course: str) -> str:
    """Explain why this process would not grade like the process with that fingerprint; empty if it would."""
    if fingerprint() != course:
        return "it has another version of the course: install the same one there, exercises and hidden cases included"
    return (session.unavailable() or "") if kind == "bwrap" else ""


@lru_cache
def fingerprint() -> str:
    """Return a digest of everything that affects points and feedback: the code, and the texts of the named mistakes."""
    files = sorted(path for folder in DECIDES for kind in ("*.py", "*.md") for path in (COURSE / folder).rglob(kind))
    digests = [(path.relative_to(COURSE).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    return hashlib.sha256(repr(digests).encode()).hexdigest()[:16]


def _distributed() -> ModuleType:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ValueError(
            f"--scheduler needs dask.distributed, which is not here ({error}): "
            'pip install "sparsity-workbook[cluster]", or distributed alone.'
        ) from None


def _connected(distributed: ModuleType, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error) or type(error).__name__
    # A client that could not connect closes when it is collected, and waits for ever if that happens while another
    # cluster or client starts: distributed's lock of its loops is held then, by the same thread. So: now.
    gc.collect()
    raise ValueError(
        f"no Dask scheduler answers at {address!r} ({reason}); expected an "
        "address such as tcp://host:8786, as `dask scheduler` prints it."
    )


def _check_workers(client: Any, plan: engine.Plan) -> None:
    """Check that every worker can grade, before the first submission is sent.

    When one dies over the question, those that are there then are asked: it may have been ended by anything.
    """
    for n_rounds_left in reversed(range(MOST_DEATHS)):
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise ValueError(
                f"the cluster has no workers after {WORKER_SECONDS} seconds; start some with `dask worker ADDRESS`."
            ) from None
        answers = client.run(unfit, plan.kind, fingerprint(), on_error="return")
        if answers and not any(map(_died, answers.values())):
            break
        if n_rounds_left:
            time.sleep(PAUSE_SECONDS)
    problems = [f"{worker}: {_problem(answer)}" for worker, answer in sorted(answers.items()) if answer]
    if problems:
        more = f"; and {len(problems) - 3} more workers" if len(problems) > 3 else ""
        raise ValueError(f"{len(problems)} of {len(answers)} workers cannot grade. {'; '.join(problems[:3])}{more}.")


def _died(answer: str | BaseException) -> bool:
    """Check whether a worker died before it answered: a closed connection is an OSError."""
    return isinstance(answer, (OSError, EOFError, TimeoutError))


def _problem(answer: str | BaseException) -> str:
    if isinstance(answer, str):
        return answer
    return f"the course is not installed there, or does not start ({type(answer).__name__}: {answer})"


def _read(submission: Submission) -> bytes | str:
    """Return the content of the notebook, or the reason why there is none."""
    try:
        return submission.read()
    except Exception as error:  # as in engine.grade
        return str(error) or type(error).__name__


def _killed(distributed: ModuleType, future: Any) -> bool:
    """Check whether several workers died while they graded it, possibly because of another submission."""
    return future.status == "error" and isinstance(future.exception(), distributed.KilledWorker)


def _result(distributed: ModuleType, future: Any, submission: Submission, plan: engine.Plan) -> Result:
    """Return the result of one submission."""
    if future.status == "finished":
        return future.result()
    if _killed(distributed, future):
        problem = f"{engine.FAILED}: grading it ended several workers of the cluster. Look at it by hand."
        return engine.unreadable(submission, plan, problem, grader_failed=True)
    error = future.exception() if future.status == "error" else future.status
    raise ValueError(
        f"the cluster gave {submission.student} back ungraded ({error}). Finished grades are stored: fix the cluster "
        "and continue with --resume."
    )
