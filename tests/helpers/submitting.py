"""Submissions made for tests, and the sandbox that runs them."""

import json
from contextlib import suppress

import psutil
import pytest
import torch

from course_lib.checking.compare import close
from course_lib.grading.records import Answer, Limits, Task
from course_lib.grading.sandbox import session

SMALL = Limits(
    seconds=30.0,
    memory_bytes=3 * 2**28,
    processes=24,
    file_bytes=8 * 2**20,
    result_bytes=4 * 2**20,
    start_seconds=300.0,
)
CASES = ((torch.tensor([1.0, 2.0, 3.0]),), (torch.tensor([4.0]),))  # of which twice as much is wanted
RIGHT = "def right(x):\n    return x * 2"

missing = session.unavailable()
needs_sandbox = pytest.mark.skipif(missing is not None, reason=missing or "")


def notebook(*cells: str, **metadata: str) -> bytes:
    """A notebook of such cells."""
    made = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells]
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).encode()


def ask(name: str, function: str) -> Task:
    """Call a function on both cases."""
    return Task(name, function, CASES)


PYTHONS_OWN = ("resource_tracker", "forkserver")


def left_over() -> list[psutil.Process]:
    """Processes that this one has started and that go on, but for those by which Python starts others."""
    processes = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if not any(f"from multiprocessing.{name}" in " ".join(child.cmdline()) for name in PYTHONS_OWN):
                processes.append(child)
    return processes


def n_right(answer: Answer) -> int:
    """How many of the cases a grader outside would count."""
    pairs = zip(answer.outcomes, CASES, strict=False)
    return sum(not o.error and close(o.value, arguments[0] * 2) is None for o, arguments in pairs)
