"""The table of the committed bench: every number is in the right row."""

from table_cells import rows as cells

from course_lib.lessons.common.results import COLUMNS, load_bench
from course_lib.lessons.dejavu import tables


def row(contest, side, times, **more):
    spread = {"times_anchor_low": times - 0.1, "times_anchor_high": times + 0.1}
    return (
        {"contest": contest, "side": side, "anchor": "dense", "repetitions": 5, "times_anchor": times} | spread | more
    )


def bench(*rows):
    return {"tables": {"sides": list(rows)}}


def test_the_speedup_of_decoding_by_setting_and_way():
    contest = "10.0% kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats" + " a byte"
    measured = bench(row(contest, "dense", 1.0), row(contest, "oracle", 2.0), row(contest, "predicted", 1.5))
    setting = "10.0 % kept (by block 25, 5, 5, 5 %), predicted +0.0165 nats per byte"
    assert cells(tables.decoding_speedup(measured)) == [
        [setting, "oracle", "2.00 (1.90–2.10)"],
        [setting, "predicted", "1.50 (1.40–1.60)"],
    ]


def test_the_committed_bench_was_right_and_fits_a_page():
    sides = load_bench("cpu_contextual_relu")["tables"]["sides"]
    assert all(each["right"] for each in sides if each["repetitions"])
    printed = str(tables.decoding_speedup())
    assert printed.count("\n") > 5
    assert max(map(len, printed.splitlines())) <= COLUMNS
