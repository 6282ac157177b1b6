"""course bench: the JSON is complete, the ratio is taken side by side, and a wrong side never counts as a fast one."""

import io
import json
import math
import re
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from course_lib.kernels.gpu import __main__ as gpu_command
from course_lib.kernels.gpu import report
from course_lib.kernels.timing import contest as contest_module
from course_lib.kernels.timing import rows as bench_rows
from course_lib.kernels.timing.contest import Clock, Contest, Place, Side, race
from rich.console import Console

from course_lib.cli import bench, bench_table
from course_lib.kernels import runtime
from course_lib.measure import machine
from course_lib.measure.roofline import Device, Work

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")
LIMIT = Device("a machine", 2e9, 1e9, "made up")
ROW_KEYS = {
    *("contest", "shape", "side", "anchor", "right", "relative_error", "bytes", "flops", "bound_seconds"),
    *("repetitions", "median_seconds", "low_seconds", "high_seconds"),
    *("share_of_bound", "times_anchor", "times_anchor_low", "times_anchor_high"),
}
ALONE_KEYS = {"alone", "numbers"}  # of sides that are timed one after the other


@pytest.fixture(autouse=True)
def quick_machine(monkeypatch):
    monkeypatch.setattr(bench, "roofline", lambda place: LIMIT)
    monkeypatch.setattr(bench_rows, "REPETITIONS", (2, 3))


@pytest.fixture
def place():
    return Place(torch.device("cpu"), torch.float32, True, torch.Generator().manual_seed(0))


def side(name, value=1.0):
    return Side(name, lambda: torch.full((2,), value), Work(10, 20))


class FakeClock:
    """Each side takes as long as it says; the machine becomes slower by a half with each repetition of each side."""

    def __init__(self, seconds):
        self.seconds_of, self.order = seconds, []

    def seconds(self, run):
        name = run()
        self.order.append(name)
        return self.seconds_of[name] * 1.5 ** (self.order.count(name) - 1)


def fake_contest(*names):
    return Contest("c", (1, 1), [Side(n, lambda n=n: n, Work(1, 1)) for n in names], torch.ones(1))


def test_a_table_fits_into_80_columns():
    row = {"contest": "a wide MLP, decoding", "shape": (4096, 11008), "verdict": "", "anchor": "dense"}
    row |= {
        "side": "bitmap, decode then dense, with a long name",
        "times_anchor": 12.5,
        "repetitions": 9,
        "right": True,
    }
    row |= {"median_seconds": 0.0123, "bound_seconds": 0.0115, "share_of_bound": 0.93}
    row |= {"times_anchor_low": 10.0, "times_anchor_high": 14.0, "low_seconds": 0.01, "high_seconds": 0.02}
    console = Console(file=io.StringIO(), width=80)
    bench_table.show(console, "kv", {"tables": {"sides": [row, row | {"side": "dense"}]}, "absent": {}})
    said = console.file.getvalue()
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    assert "12.30 ms" in said


def test_every_bench_writes_a_complete_file_and_says_where_sparsity_loses(tmp_path, capsys):
    assert bench.run(out=tmp_path, quick=True) == 0
    said = capsys.readouterr().out
    files = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert {"nm_matmul", "bitmap_matvec", "wanda_mask"} <= set(files)
    for name, result in files.items():
        assert f"{name}.json" in said.replace("\n", "")
        assert result["experiment"] == f"bench {name}"
        assert result["seed"] == bench.SEED
        assert {"cpu", "threads", "gpu", "torch", "triton", "python"} <= set(result["machine"])
        assert {"command", "started", "absent", "roofline", "sizes"} <= set(result)
        assert result["roofline"]["bytes_per_second"] == 1e9
        for row in result["tables"]["sides"]:
            assert set(row) - ALONE_KEYS == ROW_KEYS
            assert row["right"]
            assert row["repetitions"] in ((1, 2, 3) if name == "pruning" else (2, 3))  # SparseGPT runs once
            assert 0 < row["low_seconds"] <= row["median_seconds"] <= row["high_seconds"]
            assert row["bound_seconds"] == max(row["flops"] / 2e9, row["bytes"] / 1e9)
            assert math.isclose(row["share_of_bound"], row["bound_seconds"] / row["median_seconds"])


def test_only_the_named_benches_run(tmp_path):
    assert bench.run(["wanda_mask"], tmp_path, quick=True) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["wanda_mask.json"]


def test_a_bench_may_close_with_a_sentence_of_its_own(tmp_path, capsys):
    """The median over matrices, of the right side and pattern."""
    bench.run(["sparsegpt"], tmp_path, quick=True)
    said = " ".join(capsys.readouterr().out.split())
    rows = json.loads((tmp_path / "sparsegpt.json").read_text())["tables"]["sides"]
    for pattern in ("50 %", "2:4"):
        ratios = [r["times_anchor"] for r in rows if r["side"] == "solver" and r["contest"].endswith(pattern)]
        assert f"{statistics.median(ratios):.2f}x at {pattern}" in said


def test_by_default_results_go_to_the_build_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench.run(["wanda_mask"], quick=True)
    assert (tmp_path / "build" / "bench" / "wanda_mask.json").exists()


def test_the_cpu_table_compares_dense_csr_and_bitmap_over_density(tmp_path):
    bench.run(["bitmap_matvec"], tmp_path, quick=True)
    rows = json.loads((tmp_path / "bitmap_matvec.json").read_text())["tables"]["sides"]
    sides = {(row["contest"], row["side"]): row for row in rows}
    assert {name for _, name in sides} == {"dense", "CSR", "bitmap, decode then dense"}
    dense, sparse = sides["density 0.1", "dense"], sides["density 0.1", "CSR"]
    assert dense["bytes"] == 64 * 256 * 4 + (64 + 256) * 4
    assert sparse["bytes"] == pytest.approx(0.1 * 64 * 256 * 8 + 65 * 4 + (64 + 256) * 4, rel=0.1)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"got bench wanda; expected one of attention_mass, .*, or no name"):
        bench.run(["wanda"])


def test_the_interpreter_is_refused(monkeypatch):
    monkeypatch.setattr(runtime, "INTERPRETED", True)
    with pytest.raises(ValueError, match="TRITON_INTERPRET is set; expected .* Unset it"):
        bench.run()


def test_a_wrong_side_is_reported_not_timed_and_fails_the_run(tmp_path, monkeypatch, capsys):
    def contests(place):
        yield Contest("one", (2, 1), [side("dense"), side("kernel", value=1.1)], torch.ones(2))

    monkeypatch.setattr(bench, "_benches", lambda names: {"fake": SimpleNamespace(contests=contests)})
    assert bench.run(out=tmp_path, quick=True) == 1
    row = json.loads((tmp_path / "fake.json").read_text())["tables"]["sides"][1]
    assert row["right"] is False
    assert row["relative_error"] == pytest.approx(0.1, rel=1e-5)
    assert row["repetitions"] == 0
    assert "median_seconds" not in row
    assert "WRONG: 'kernel' at one" in capsys.readouterr().out


def test_nan_is_wrong(place):
    contest = Contest("one", (2, 1), [side("dense"), side("kernel", value=float("nan"))], torch.ones(2))
    rows = bench_rows.measure(contest, Clock(place, 1e9), LIMIT, tolerance=1e9)
    assert [row["right"] for row in rows] == [True, False]


def test_what_a_side_leaves_unwritten_is_wrong(place):
    """Even where the memory that it gets has held the right result."""
    contest = Contest("one", (2, 1), [side("dense"), Side("kernel", lambda: torch.empty(2), Work(1, 1))], torch.ones(2))
    asked = torch.are_deterministic_algorithms_enabled()
    rows = bench_rows.measure(contest, Clock(place, 1e9), LIMIT, tolerance=1e9)
    assert [row["right"] for row in rows] == [True, False]
    with contest_module.poisoned_outputs():
        assert torch.empty(3, dtype=torch.bfloat16).isnan().all()
        assert torch.empty(3, dtype=torch.int32).eq(2**31 - 1).all()
    assert torch.are_deterministic_algorithms_enabled() == asked


def test_a_device_that_draws_its_own_numbers(place):
    assert place.rand(4, 3).dtype == torch.float32
    assert place.rand(100).min() >= 0
    assert place.randn(4, 3).shape == (4, 3)


def test_the_sides_take_turns_and_the_ratio_is_taken_within_a_turn():
    clock = FakeClock({"dense": 2.0, "half": 1.0})
    seconds = race(fake_contest("dense", "half"), clock, budget=0.0, limits=(4, 9))
    assert clock.order == ["dense", "half", "half", "dense", "dense", "half", "half", "dense"]
    row = bench_rows._statistics(seconds, "half", "dense", bound=0.5)
    # The machine slowed down more than threefold on the way, and yet every turn says: twice as fast.
    assert (row["times_anchor"], row["times_anchor_low"], row["times_anchor_high"]) == (2.0, 2.0, 2.0)
    assert row["median_seconds"] == (1.5 + 1.5**2) / 2
    assert row["share_of_bound"] == 0.5 / row["median_seconds"]


def test_a_race_repeats_within_its_limits():
    clock = FakeClock({"dense": 1.0})
    assert len(race(fake_contest("dense"), clock, budget=0.0, limits=(5, 30))["dense"]) == 5
    assert len(race(fake_contest("dense"), clock, budget=60.0, limits=(5, 7))["dense"]) == 7


@pytest.mark.parametrize("path", sorted(bench_rows.RESULTS.glob("cpu_*.json")), ids=lambda path: path.stem)
def test_what_is_kept_says_where_it_comes_from_and_is_whole_and_right(path):
    """One made with --quick, or of a wrong kernel, is not kept."""
    result = json.loads(path.read_text(encoding="utf-8"))
    assert {"command", "seed", "machine", "started"} <= set(result)
    assert result["experiment"].startswith("bench ")
    assert result["sizes"]["quick"] is False
    assert result["tables"]["sides"]
    assert all(row["right"] for row in result["tables"]["sides"])


GPU = sorted(bench_rows.RESULTS.glob("gpu_*.json"))


@pytest.mark.parametrize("path", GPU, ids=lambda path: path.stem)
def test_what_a_gpu_did_is_kept_whole_and_right(path):
    """All that `make gpu` wrote, on the device that the file is named after, and nothing of where it was written."""
    text = path.read_text(encoding="utf-8")
    result = json.loads(text)
    assert (result["experiment"], result["complete"]) == ("gpu", True)
    assert result["command"] == "make gpu", "a part of it, or a command with the folder that it was written into"
    assert not re.search(r"/(root|home|Users|tmp)/", text)
    device, ceilings = result["device"], result["ceilings"]
    assert path.stem.removeprefix("gpu_").upper() in device["name"]
    assert device["kernels"] == "compiled"
    assert all(device[name] for name in ("driver", "torch", "triton", "cuda"))
    assert set(ceilings["matmul_flops_per_second"]) == set(report.TYPES)
    assert ceilings["copy_bytes_per_second"] > 1e11
    assert result["started"][:4].isdigit()


@pytest.mark.parametrize("path", GPU, ids=lambda path: path.stem)
def test_every_kernel_was_tested_and_timed_on_that_gpu(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    tests, benches = gpu_command._parts(gpu_command._arguments([]))
    benched = {name.split(".")[-1] for name in benches}
    # Those of methods, and of a kernel that another one launches, do not have the type of numbers as a parameter.
    without_types = {Path(part.name).stem for part in tests if part.name.endswith(".py")} | {"hopper_prefill"}
    assert {Path(part.name).stem for part in tests} == set(result["tests"])
    assert benched == set(result["benches"])
    for name, entry in result["tests"].items():
        assert (entry["status"], entry["failed"], entry["broken"]) == ("right", 0, {}), name
        if name not in without_types:
            assert all(entry["by_type"][kind]["passed"] > 0 for kind in report.TYPES), name
        if name in benched:
            assert result["benches"][name]["rows"], name
    for name, entry in result["benches"].items():
        if entry["status"] == "broken":  # it says so, and what it had timed until then is kept
            assert any(line.startswith(f"bench {name}: ") for line in result["wrong"]), name
        else:
            assert entry["status"] in (("right",) if name in result["tests"] else ("right", "absent")), name
        if not entry["rows"]:
            continue
        floats = {"sparsegpt": "float32", "sparsegpt_columns": "float32"}
        assert entry["dtype"] == floats.get(name, "bfloat16"), name
        for row in entry["rows"]:
            assert set(row) - ALONE_KEYS == ROW_KEYS | {"verdict"}
            assert row["verdict"] == bench_rows.verdict(row)
            assert row["right"]
            assert row["repetitions"] >= (1 if name in ("decoding", "prefilling", "pruning") else 5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"side": "dense"}, "anchor"),
        ({"times_anchor_low": 1.1, "times_anchor_high": 1.5}, "wins"),
        ({"times_anchor_low": 0.9, "times_anchor_high": 1.5}, "even"),
        ({"times_anchor_low": 0.1, "times_anchor_high": 0.9}, "loses"),
        ({"right": False}, "wrong"),
        ({"repetitions": 0}, "not timed"),
    ],
)
def test_a_verdict_needs_the_whole_spread_on_one_side(change, expected):
    row = {"side": "CSR", "anchor": "dense", "right": True, "repetitions": 5}
    row |= {"times_anchor_low": 1.0, "times_anchor_high": 1.0}
    assert bench_rows.verdict(row | change) == expected


def test_the_words_say_where_it_loses_and_what_is_absent():
    row = {"contest": "density 0.5", "side": "CSR", "anchor": "dense", "right": True, "repetitions": 5}
    row |= {"times_anchor": 0.5, "times_anchor_low": 0.4, "times_anchor_high": 0.6}
    said = bench_table.sentences([row, row | {"contest": "density 0.4"}], {"density 0.5: cuSPARSE": "no GPU"})
    assert said == [
        "'CSR' is slower than 'dense' at: density 0.5 (0.50x); density 0.4 (0.50x).",
        "Absent: density 0.5: cuSPARSE: no GPU",
    ]


def test_a_side_that_a_library_refuses_is_absent_with_the_reason():
    def refuse():
        raise RuntimeError("needs a newer card\nlong trace")

    contest = fake_contest("dense")
    contest.try_side("fast", lambda: Side("fast", refuse, Work(1, 1)))
    contest.try_side("other", lambda: Side("other", lambda: torch.ones(1), Work(1, 1)))
    assert contest.absent == {"fast": "needs a newer card"}
    assert [s.name for s in contest.sides] == ["dense", "other"]


def test_on_a_gpu_the_cache_is_emptied_before_the_events_and_the_end_is_awaited(monkeypatch, place):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 2.0  # milliseconds

    clock = Clock(place, 1e9)
    clock.device = SimpleNamespace(type="cuda")
    clock.flush = SimpleNamespace(zero_=lambda: log.append("flush"))
    monkeypatch.setattr(contest_module.torch.cuda, "Event", Event)
    assert clock.seconds(lambda: log.append("run")) == 0.002
    assert log == ["flush", "record", "run", "record", "wait"]


def test_the_roofline_is_measured_on_this_machine(monkeypatch, place):
    monkeypatch.undo()
    monkeypatch.setitem(machine.STREAM_BYTES, "cpu", 2**20)
    monkeypatch.setattr(bench, "fastest_seconds", lambda function, device: (function(), 0.5)[1])
    limit = bench.roofline(place)
    assert limit.flops_per_second == 2 * 1536**3 / 0.5
    assert limit.bytes_per_second > 0
    assert "float32" in limit.source
