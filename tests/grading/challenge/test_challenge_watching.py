"""Recipes are measured in processes that are watched: what takes too much is ended, and the next is measured."""

import sys
import time
from dataclasses import replace
from itertools import islice

import psutil
import pytest
from stand_in import GIB, as_plain_data, work

from course_lib.grading.challenge import evaluation
from course_lib.grading.challenge.watching import Evaluator, measure_all

# A process that measures starts seven times here, and a real one imports for longer than it is watched.
Job, SETTINGS = as_plain_data(evaluation.Job), as_plain_data(evaluation.Settings)(seed=0)


def wait_for(evaluator, job):
    evaluator.start(job)
    while (found := evaluator.look()) is None:
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module", autouse=True)
def without_pytest():
    """A process imports the program that started it; none of what is measured here needs pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "__spec__", None)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        yield


@pytest.fixture(scope="module")
def evaluator(without_pytest):
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


def test_a_process_that_dies_is_tried_once_more_and_closing_ends_them_all(tmp_path):
    """Two at a time; when three are measured, the fourth is still at work."""
    dies, once, fine, endless = (
        Job("dies"),
        Job("dies once", ((str(tmp_path / "seen"), b""),)),
        Job("fine"),
        Job("endless"),
    )
    earlier = {child.pid for child in psutil.Process().children()}
    running = measure_all([dies, once, fine, endless], SETTINGS, 2, work)
    found = dict(islice(running, 3))
    assert found[dies].failed
    assert "twice" in found[dies].problem
    assert [found[job].losses for job in (once, fine)] == [{"dies once": [1.0]}, {"fine": [1.0]}]
    begun = {child.pid for child in psutil.Process().children()} - earlier
    running.close()
    assert begun
    left = [child for child in psutil.Process().children() if child.pid in begun]
    assert not psutil.wait_procs(left, timeout=10)[1]
