"""Measure recipes in processes whose parent watches their processor time and memory."""

import time
from collections.abc import Callable, Iterator, Sequence

import psutil

from course_lib.grading.challenge.evaluation import Found, Job, Settings, evaluate
from course_lib.grading.workers.pool import Worker

LOOK = 0.1  # seconds between two checks
Work = Callable[[Job, Settings], Found]


class Evaluator:
    """One process and its current recipe; it is replaced if it had to be killed."""

    def __init__(self, settings: Settings, work: Work) -> None:
        self.settings, self.work = settings, work
        self.worker: Worker | None = None
        self.job: Job | None = None
        self.used, self.again = 0.0, False

    def start(self, job: Job, again: bool = False) -> None:
        self.worker = self.worker or Worker(self.settings, self.work)
        self.job, self.again, self.used = job, again, self._taken()[0]
        self.worker.start(job)

    def look(self) -> Found | None:
        """Return the result of its recipe, or None while it runs. After the process died, try the recipe once more."""
        job = self.job
        if not self.worker.connection.poll():
            return self._too_much()
        found = self.worker.finish()
        self.job = None
        if found is None:
            self.stop()
            if not self.again:
                self.start(job, again=True)
                return None
        return found or Found(problem="a process of the grader ended over it, twice", failed=True)

    def _too_much(self) -> Found | None:
        seconds, memory = self._taken()
        told = None
        if seconds - self.used > self.settings.seconds:
            told = f"it took more than {self.settings.seconds:g} seconds of the processor"
        elif memory > self.settings.memory:
            told = f"it took more than {self.settings.memory / 2**30:g} GiB of memory"
        if told is None:
            return None
        self.stop()
        return Found(problem=f"{told}; expected a recipe that is built in less. Calibrate it on less text.")

    def _taken(self) -> tuple[float, int]:
        """Return processor seconds and bytes; zeros if the process is gone, which its connection reports too."""
        try:
            process = psutil.Process(self.worker.process.pid)
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
        except psutil.Error:
            return 0.0, 0

    def stop(self) -> None:
        """Kill the process."""
        if self.worker is not None:
            self.worker.stop()
        self.worker = self.job = None


def measure_all(jobs: Sequence[Job], settings: Settings, n: int, work: Work = evaluate) -> Iterator[tuple[Job, Found]]:
    """Measure n recipes at a time and yield each with its result. Closing the iterator kills the processes."""
    waiting, evaluators = list(reversed(jobs)), [Evaluator(settings, work) for _ in range(min(n, len(jobs)))]
    try:
        while waiting or any(each.job for each in evaluators):
            for each in evaluators:
                if each.job is None and waiting:
                    each.start(waiting.pop())
                job = each.job
                if job is not None and (found := each.look()) is not None:
                    each.job = None
                    yield job, found
            time.sleep(LOOK)
    finally:
        for each in evaluators:
            each.stop()
