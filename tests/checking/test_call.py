"""One call of a student's function: time limits inside of time limits."""

import signal
import time

import pytest
import torch

from course_lib.checking import call
from course_lib.checking.call import DidNotFinish, limited

needs_alarm = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="alarms")


def many_short_limits():
    for _ in range(60):
        with limited(5.0):
            time.sleep(0.05)


@needs_alarm
def test_a_limit_goes_on_while_others_start_and_end_inside(monkeypatch):
    monkeypatch.setattr(call, "starved", lambda: 0.0)  # what a busy machine takes away does not count
    began = time.monotonic()
    with pytest.raises(DidNotFinish), limited(0.3):
        many_short_limits()
    assert time.monotonic() - began < 2.5  # 3 s without the outer limit; it may ring a second late


@needs_alarm
def test_after_the_last_limit_no_alarm_is_left():
    with limited(5.0), limited(0.5):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def takes(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


@needs_alarm
def test_cases_are_called_one_after_another_until_one_does_not_end():
    def stuck_at_two(n):
        while n == 2:
            pass
        return n

    outcomes = list(call.calls(stuck_at_two, [(1,), (2,), (3,)], 0.1))
    assert [(outcome.value, outcome.endless) for outcome in outcomes] == [(1, False), (None, True)]
    assert "within 0.1 seconds" in outcomes[1].error


@needs_alarm
def test_all_cases_together_have_a_limit_and_the_error_says_so():
    outcomes = list(call.calls(takes, [(0.3,)] * 4, 20.0, 0.5))
    assert [outcome.endless for outcome in outcomes] == [False, True]
    assert "all cases together have 0.5 seconds" in outcomes[1].error


@needs_alarm
def test_what_is_waited_counts_half():
    began = time.monotonic()
    with pytest.raises(DidNotFinish), limited(0.2):
        time.sleep(60)
    assert time.monotonic() - began > 0.35


def test_arguments_are_copied_as_deepcopy_does():
    tensor, wide, weight = torch.arange(6.0).reshape(2, 3), torch.zeros(4, 4), torch.nn.Parameter(torch.ones(2))
    given = (tensor, (tensor, 2.5, "a"), wide[:, 1:3], wide.T, weight, {"rows": [tensor]}, torch.ones(1).expand(3))
    got = call.copied(given, {})
    ours, (again, number, text), cut, turned, trained, rows, expanded = got
    assert torch.equal(ours, tensor)
    assert (number, text) == (2.5, "a")
    assert ours is again is rows["rows"][0], "one object stays one"
    assert cut.stride() == (4, 1), "whether a view can be taken of it is as before"
    assert turned.stride() == (1, 4)
    assert expanded.stride() == (0,)
    assert type(trained) is torch.nn.Parameter
    for tensors in ((ours, cut, turned), (trained.data,)):
        for each in tensors:
            each.fill_(7)
    assert tensor.flatten().tolist() == [0, 1, 2, 3, 4, 5], "nothing of the case is changed"
    assert not wide.any()
    assert weight.tolist() == [1, 1]
