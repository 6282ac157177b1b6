"""Recipes are measured in processes that are watched: what takes too much is ended, and the next is measured."""

import time
from dataclasses import replace

import psutil
import pytest
from stand_in import GIB, as_plain_data, work

from course_lib.grading.challenge import evaluation
from course_lib.grading.challenge.watching import Evaluator, measure_all

# A process that measures starts nine times here, and a real one imports for longer than it is watched.
Job, SETTINGS = as_plain_data(evaluation.Job), as_plain_data(evaluation.Settings)(seed=0)


def wait_for(evaluator, job):
    evaluator.start(job)
    while (found := evaluator.look()) is None:
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def evaluator():
    """Warm: what it takes to start is not the recipe's."""
    one = Evaluator(SETTINGS, work)
    assert wait_for(one, Job("warm")).losses == {"warm": [1.0]}
    yield one
    one.stop()


def test_what_takes_too_much_is_ended_and_the_next_is_measured(evaluator):
    taken = psutil.Process(evaluator.worker.process.pid).memory_info().rss
    evaluator.settings = replace(SETTINGS, memory=taken + GIB // 2)
    assert "GiB of memory; expected a recipe" in wait_for(evaluator, Job("large")).problem
    assert evaluator.worker is None
    evaluator.settings = SETTINGS
    assert not wait_for(evaluator, Job("fine")).problem
    evaluator.settings = replace(SETTINGS, seconds=0.5)
    found = wait_for(evaluator, Job("endless"))
    assert "it took more than 0.5 seconds of the processor" in found.problem
    assert not found.failed
    evaluator.settings = SETTINGS


def test_a_process_that_dies_is_tried_once_more(tmp_path):
    jobs = [Job("dies"), Job("dies once", str(tmp_path / "seen").encode()), Job("fine")]
    found = dict(measure_all(jobs, SETTINGS, 1, work))
    assert found[jobs[0]].failed
    assert "twice" in found[jobs[0]].problem
    assert [found[job].losses for job in jobs[1:]] == [{"dies once": [1.0]}, {"fine": [1.0]}]


def test_closing_ends_the_processes():
    earlier = {child.pid for child in psutil.Process().children()}
    running = measure_all([Job("fine"), Job("endless")], SETTINGS, 2, work)
    next(running)
    begun = {child.pid for child in psutil.Process().children()} - earlier
    running.close()
    assert begun
    left = [child for child in psutil.Process().children() if child.pid in begun]
    assert not psutil.wait_procs(left, timeout=10)[1]
