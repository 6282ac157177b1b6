"""The clocks of a report: each second counts for one phase, that begun last."""

import pytest

from course_lib.pruning import report as module
from course_lib.pruning.report import PruneReport


@pytest.fixture
def pass_seconds(monkeypatch):
    """Lets time pass, which stands still otherwise."""
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def passing(seconds):
        now[0] += seconds

    return passing


def test_a_phase_within_a_phase_stops_the_outer_clock(pass_seconds):
    report = PruneReport(0)
    with report.timed("forward"):
        pass_seconds(1)
        with report.timed("gram"):
            pass_seconds(2)
        pass_seconds(4)
        with report.timed("gram"):
            pass_seconds(8)
            with report.timed("solve"):
                pass_seconds(16)
    assert report.seconds == {"forward": 5, "gram": 10, "factorise": 0, "solve": 16}


def test_time_between_phases_counts_for_none(pass_seconds):
    report = PruneReport(0)
    for phase in ("forward", "solve", "forward"):
        pass_seconds(1)
        with report.timed(phase):
            pass_seconds(2)
    assert report.seconds == {"forward": 4, "gram": 0, "factorise": 0, "solve": 2}


def test_a_phase_within_itself_counts_once(pass_seconds):
    report = PruneReport(0)
    with report.timed("forward"), report.timed("forward"):
        pass_seconds(3)
    assert report.seconds["forward"] == 3


def test_a_failure_stops_the_clocks_that_it_leaves(pass_seconds):
    report = PruneReport(0)

    def fails():
        with report.timed("gram"):
            pass_seconds(1)
            raise ValueError("no Gram")

    with report.timed("forward"):
        with pytest.raises(ValueError, match="no Gram"):
            fails()
        pass_seconds(2)
    pass_seconds(4)
    assert report.seconds == {"forward": 2, "gram": 1, "factorise": 0, "solve": 0}
