"""Tables of the committed benches: every number stands where its row says."""

import pytest

from course_lib.lessons.common.tables import COLUMNS
from course_lib.lessons.dejavu.tables import clock


def row(contest, side, times, **more):
    spread = {"times_anchor_low": times - 0.1, "times_anchor_high": times + 0.1}
    return (
        {"contest": contest, "side": side, "anchor": "dense", "repetitions": 5, "times_anchor": times} | spread | more
    )


def bench(*rows):
    return {"tables": {"sides": list(rows)}}


def test_ways_by_share():
    measured = bench(
        row("50% kept", "dense", 1.0),
        row("50% kept", "embedding_bag", 0.9),
        row("10% kept", "dense", 1.0),
        row("10% kept", "embedding_bag", 4.25),
        row("10% kept", "not timed", 9.0, repetitions=0),
        row("batch of 2, 19% in all", "rows of the union", 2.0),
    )
    head, bag, absent = clock.one_token(measured).splitlines()
    assert head.split()[-4:] == ["50", "%", "10", "%"]
    assert (head.index("50 %"), head.index("10 %")) == (bag.index("0.90"), bag.index("4.25"))
    assert bag.split() == ["embedding_bag", "0.90", "4.25"]
    assert absent.split() == ["not", "timed"]


def test_a_batch_and_the_model_from_end_to_end():
    measured = bench(
        row("batch of 2, 19% in all", "dense", 1.0),
        row("batch of 2, 19% in all", "rows of the union", 2.0),
        row("10% kept", "embedding_bag", 4.0),
    )
    assert clock.batches(measured) == "batch of 2, 19 % in all: 2.00 times (1.90 to 2.10) as fast as dense"
    contest = "10.0% kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats a byte"
    measured = bench(row(contest, "dense", 1.0), row(contest, "oracle", 2.0), row(contest, "predicted", 1.5))
    assert clock.end_to_end(measured).splitlines() == [
        "10.0 % kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats a byte",
        "    oracle: 2.00 times (1.90 to 2.10) as fast as dense",
        "    predicted: 1.50 times (1.40 to 1.60) as fast as dense",
    ]


@pytest.mark.parametrize("name", [clock.ONE_TOKEN, clock.RELU])
def test_what_is_committed_was_right_and_fits_a_page(name):
    measured = clock.results(name)
    assert all(each["right"] for each in measured["tables"]["sides"] if each["repetitions"])
    tables = (clock.provenance, clock.one_token, clock.batches) if name == clock.ONE_TOKEN else (clock.end_to_end,)
    printed = "\n".join(table(measured) for table in tables)
    assert printed.count("\n") > 5
    assert max(map(len, printed.splitlines())) <= COLUMNS
