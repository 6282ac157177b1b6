"""Two runs of `make gpu` on one device, joined."""

import pytest
from course_lib.kernels.gpu.merged import merged


def run(started, device="A CARD", **contests):
    benches = {
        name: {"rows": [{"contest": str(i), "of": started} for i in range(n)], "broken": {"step": "hung\n  File /x"}}
        for name, n in contests.items()
    }
    return {"started": started, "device": {"name": device}, "benches": benches, "wrong": [f"{started}: bad\n  File /x"]}


def test_a_bench_that_the_later_run_did_not_finish_is_taken_from_the_earlier():
    found = merged(run("first", whole=6, cut=6, gone=3, few=1), run("second", whole=6, cut=1, few=1, new=1))
    assert {name: entry["started"] for name, entry in found["benches"].items()} == {
        "cut": "first",
        "few": "second",
        "gone": "first",
        "new": "second",
        "whole": "second",
    }
    assert all(row["of"] == entry["started"] for entry in found["benches"].values() for row in entry["rows"])
    assert found["started"] == "second"


def test_tracebacks_are_left_out():
    found = merged(run("first", a=2), run("second", a=2))
    assert found["wrong"] == ["second: bad"]
    assert found["benches"]["a"]["broken"] == {"step": "hung"}


def test_two_devices_are_refused():
    with pytest.raises(ValueError, match="got runs of A CARD and ANOTHER; expected one device in both"):
        merged(run("first"), run("second", device="ANOTHER"))
