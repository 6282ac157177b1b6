"""Tables of the committed benches: every number stands where its row says."""

import pytest
from table_cells import headings
from table_cells import rows as cells

from course_lib.lessons.common.results import COLUMNS
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
    table = clock.one_token(measured)
    assert headings(table) == ["way", "50 %", "10 %"]
    assert cells(table) == [["embedding_bag", "0.90", "4.25"], ["not timed", "–", "–"]]


def test_a_batch_and_the_model_from_end_to_end():
    measured = bench(
        row("batch of 2, 19% in all", "dense", 1.0),
        row("batch of 2, 19% in all", "rows of the union", 2.0),
        row("10% kept", "embedding_bag", 4.0),
    )
    assert cells(clock.batches(measured)) == [["batch of 2, 19 % in all", "rows of the union", "2.00 (1.90–2.10)"]]
    contest = "10.0% kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats a byte"
    measured = bench(row(contest, "dense", 1.0), row(contest, "oracle", 2.0), row(contest, "predicted", 1.5))
    setting = "10.0 % kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats a byte"
    assert cells(clock.end_to_end(measured)) == [
        [setting, "oracle", "2.00 (1.90–2.10)"],
        [setting, "predicted", "1.50 (1.40–1.60)"],
    ]


@pytest.mark.parametrize("name", [clock.ONE_TOKEN, clock.RELU])
def test_what_is_committed_was_right_and_fits_a_page(name):
    measured = clock.results(name)
    assert all(each["right"] for each in measured["tables"]["sides"] if each["repetitions"])
    tables = (clock.provenance, clock.one_token, clock.batches) if name == clock.ONE_TOKEN else (clock.end_to_end,)
    printed = "\n".join(str(table(measured)) for table in tables)
    assert printed.count("\n") > 5
    assert max(map(len, printed.splitlines())) <= COLUMNS
