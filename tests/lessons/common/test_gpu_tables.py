"""What the lessons print of a run of `make gpu`, from a made-up one."""

import math
import re

import pytest
from table_cells import headings, rows

from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import COLUMNS, load_bench
from course_lib.lessons.common.verdicts import verdict


def row(contest, side, times=1.0, said="anchor", spread=1.01, **changed):
    made = {"contest": contest, "side": side, "anchor": "dense", "verdict": said, "repetitions": 5, "shape": [3, 8]}
    made |= {"median_seconds": 4e-5 / times, "bound_seconds": 1e-5, "share_of_bound": times / 4, "times_anchor": times}
    return made | {"times_anchor_low": times / spread, "times_anchor_high": times * spread} | changed


ROWS = [
    *(row("tokens: 1", "dense"), row("tokens: 1", "torch", 0.5, "loses"), row("tokens: 1", "kernel", 2.0, "wins")),
    *(row("tokens: 8", "dense"), row("tokens: 8", "torch", 0.5, "loses"), row("tokens: 8", "kernel", 1.0, "even", 1.1)),
    *(row("tokens: 64", "dense"), row("tokens: 64", "torch", 0.8, "loses"), row("tokens: 64", "kernel", 0.4, "loses")),
]
RUN = {
    "command": "make gpu",
    "started": "2026-01-02T03:04:05+00:00",
    "device": {"name": "A CARD", "torch": "2.11", "triton": "3.6"},
    "ceilings": {"copy_bytes_per_second": 2e12, "matmul_flops_per_second": {"float32": 5e13, "bfloat16": 7e14}},
    "benches": {"product": {"dtype": "bfloat16", "rows": ROWS}, "model": {"status": "absent", "rows": []}},
}


def test_where_the_times_come_from():
    said = gpu.provenance(RUN)
    assert said.startswith("`make gpu`, 2026-01-02, A CARD, torch 2.11, triton 3.6\nbound: 2.00 TB/s and 700 TFLOP/s, ")
    assert max(map(len, said.splitlines())) <= COLUMNS


def test_a_line_a_side_with_its_bound_and_its_spread():
    table = gpu.table("product", contests=["tokens: 1"], measured=RUN)
    assert table.caption == "product (bfloat16): time on the GPU"
    assert headings(table)[:2] == ["comparison", "implementation"]
    assert headings(table)[2:5] == ["time (µs)", "bound (µs)", "bound / time"]
    assert rows(table) == [
        ["tokens: 1 (3 × 8)", "dense", "40.0", "10.0", "25 %", "–", "reference"],
        ["tokens: 1 (3 × 8)", "torch", "80.0", "10.0", "12 %", "0.50 (0.50–0.51)", "slower"],
        ["tokens: 1 (3 × 8)", "kernel", "20.0", "10.0", "50 %", "2.00 (1.98–2.02)", "faster"],
    ]


def test_a_whole_model_shows_what_the_bench_noted():
    fast = row("32k", "H2O", 2.0, "wins", anchor="Full", numbers={"tokens_per_second": 800.4, "peak_bytes": 25e9})
    bench = {
        "dtype": "bfloat16",
        "rows": [row("32k", "Full", anchor="Full", numbers={"tokens_per_second": 400.2}), fast],
    }
    table = gpu.whole_model("decoding", measured=RUN | {"benches": {"decoding": bench}})
    assert headings(table)[:5] == ["setting", "method", "time (ms)", "tokens/s", "memory (GB)"]
    assert rows(table) == [
        ["32k", "Full", "0.04", "400", "–", "–", "reference"],
        ["32k", "H2O", "0.02", "800", "25.0", "2.00 (1.98–2.02)", "faster"],
    ]


def test_a_whole_model_without_notes_has_no_such_columns():
    bench = {"dtype": "bfloat16", "rows": [row("32 blocks", "score"), row("32 blocks", "2:4", 0.5, "loses")]}
    table = gpu.whole_model("pruning", measured=RUN | {"benches": {"pruning": bench}})
    assert headings(table)[:4] == ["setting", "method", "time (ms)", "speedup"]


def test_the_sides_that_are_asked_for_in_their_order():
    table = gpu.table("product", sides=["kernel", "dense"], measured=RUN)
    assert table.frame["implementation"].tolist() == ["dense", "kernel"] * 3


def test_what_was_not_timed_says_so():
    wrong = row("tokens: 1", "kernel", said="wrong", repetitions=0, median_seconds=None)
    run = RUN | {"benches": {"product": {"dtype": "float16", "rows": [row("tokens: 1", "dense"), wrong]}}}
    assert rows(gpu.table("product", measured=run))[-1][1:] == ["kernel", "–", "–", "–", "–", "wrong"]
    run["benches"]["product"]["stopped"] = "more tokens"
    assert gpu.table("product", measured=run).note.endswith("Not timed: more tokens.")


def test_a_bench_of_an_earlier_run_says_its_day():
    for day, said in (("2026-01-01", True), ("2026-01-02", False)):
        bench = {"dtype": "bfloat16", "started": f"{day}T05:00:00+00:00", "rows": [row("32k", "dense")]}
        run = RUN | {"benches": {"product": bench}}
        for table in (gpu.table("product", measured=run), gpu.whole_model("product", measured=run)):
            assert table.note.endswith("Measured on 2026-01-01, in an earlier run.") is said
            assert ("Measured" in table.note) is said


def test_a_single_repetition_has_neither_a_range_nor_a_verdict():
    once = [row("32k", "dense", repetitions=1), row("32k", "kernel", 2.0, "wins", repetitions=1)]
    rows_of_two = [row("8k", "dense", repetitions=2), row("8k", "kernel", 2.0, "wins", repetitions=2)]
    run = RUN | {"benches": {"product": {"dtype": "bfloat16", "rows": once + rows_of_two}}}
    for table in (gpu.table("product", measured=run), gpu.whole_model("product", measured=run)):
        said = [cells[-2:] for cells in rows(table)]
        assert said == [["–", "reference"], ["2.00", "one run"], ["–", "reference"], ["2.00 (1.98–2.02)", "faster"]]
    run["benches"]["product"]["rows"] = once
    assert rows(gpu.whole_model("product", measured=run))[1][-2:] == ["2.00", "one run"]


def test_a_part_of_the_work_is_neither_faster_nor_slower():
    made = [row("8k", "dense"), row("8k", "index alone", 9.0, "wins"), row("8k", "kernel", 2.0, "wins")]
    run = RUN | {"benches": {"product": {"dtype": "float16", "rows": made}}}
    for table in (gpu.table("product", measured=run), gpu.whole_model("product", measured=run)):
        assert [cells[-1] for cells in rows(table)] == ["reference", "part only", "faster"]
        assert "part only: less work than the reference." in table.note
    assert "part only" not in gpu.table("product", measured=RUN).note


@pytest.mark.parametrize("bench", [name for name, entry in gpu.results()["benches"].items() if entry["rows"]])
def test_no_table_of_the_committed_run_says_contest_side_or_anchor(bench):
    for table in (gpu.table(bench), gpu.whole_model(bench)):
        said = re.findall(r"\b(?:contests?|sides?|anchor|wins|loses)\b", str(table) + table.note)
        assert not said


def test_a_share_below_a_half_per_cent_is_no_zero():
    run = RUN | {"benches": {"product": {"dtype": "float16", "rows": [row("tokens: 1", "dense", share_of_bound=4e-3)]}}}
    assert rows(gpu.table("product", measured=run))[0][4] == "<1 %"


def test_the_widest_lines_of_the_committed_run_fit():
    for name, entry in gpu.results()["benches"].items():
        if entry["rows"]:
            assert max(map(len, str(gpu.table(name)).splitlines())) <= COLUMNS
    assert gpu.results() == load_bench(gpu.RESULT)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"bench": "model"}, "got bench 'model', which is not in gpu_h200.json; expected product"),
        (
            {"bench": "product", "contests": ["tokens: 2"]},
            "got comparison of product 'tokens: 2'.*tokens: 1, tokens: 8 and",
        ),
        (
            {"bench": "product", "sides": ["CSR"]},
            "got implementation of product 'CSR'.*expected dense, torch and kernel",
        ),
    ],
)
def test_what_the_run_has_not_is_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        gpu.table(**asked, measured=RUN)


def test_effects_come_contest_by_contest():
    alone = gpu.faster("product", "kernel", measured=RUN)
    assert [effect.value for effect in alone] == pytest.approx([math.log(2), 0, math.log(0.4)])
    assert verdict(alone) == "mixed (holds in 1; fails in 1; undecided in 1)"
    beside = gpu.faster("product", "kernel", "torch", measured=RUN)
    assert [effect.value for effect in beside] == pytest.approx([math.log(4), math.log(2), -math.log(2)])
    assert all(effect.error > 0 for effect in beside)
