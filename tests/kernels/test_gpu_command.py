"""`make gpu` where there is no GPU: what it says, and a rehearsal on the CPU with parts that fail in every way."""

import importlib.metadata
import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from course_lib.kernels.gpu import __main__ as command
from course_lib.kernels.gpu import parts, process, report
from course_lib.kernels.runtime import triton

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="the command itself decides which parts are interpreted")
ROOT = Path(__file__).parents[2]
NEEDED = ("torch", "triton", "numpy", "pytest")
MADE_UP_TESTS = """
import os, time

def test_first(): pass
def test_wrong(): assert 1 == 2
def test_crash(): os.abort()
def test_behind_the_crash(): pass
def test_hang(): time.sleep(100)
def test_behind_the_hang(): pass
"""
MADE_UP_BENCH = """
import os, torch
from course_lib.measure.roofline import Work
from course_lib.kernels.timing.contest import Contest, Side

def contest(name, kernel):
    dense = Side("dense", lambda: torch.ones(2), Work(10, 20))
    return Contest(name, (2, 1), [dense, Side("kernel", kernel, Work(10, 20))], torch.ones(2))

def refused():
    raise RuntimeError("out of resource: shared memory")

def contests(place):
    yield contest("right", lambda: torch.ones(2))
    yield contest("refused", refused)
    ran = []
    yield contest("goes on from where it was", lambda: ran.append(1) or torch.full((2,), 1.0 + (len(ran) > 1)))
    yield contest("refused on other numbers", refused if place.generator.initial_seed() else lambda: torch.ones(2))
    yield contest("crash", os.abort)
    yield contest("wrong", lambda: torch.full((2,), 1.5))
    yield contest("unwritten", lambda: torch.empty(2))
    yield contest("last", lambda: torch.ones(2))
"""
ALONE_BENCH = """
import torch
from contextlib import contextmanager
from course_lib.kernels.timing.contest import Contest, DoesNotFit, Side
from course_lib.measure.roofline import Work

CHECKED_ONCE, LOG = True, []

def side(name, fits=True):
    @contextmanager
    def opened():
        if not fits:
            raise DoesNotFit("does not fit: 137.4 GB")
        LOG.append(name)
        yield lambda: torch.ones(1)
    return Side(name, lambda: torch.ones(1), Work(1, 1), opened=opened, numbers=lambda seconds: {"peak_bytes": 8e9})

def contests(place):
    assert place.generator.initial_seed() == 0, "checked once"
    yield Contest("large", (8, 32768), [side("all", fits=False), side("half"), side("fifth")], torch.ones(1))

def prepared(place):
    yield Contest("small", (8, 32768), [side("small")], torch.ones(1))
"""
NEVER_SET_UP = """
def contests(place):
    raise FileNotFoundError("The model is not there. Run `course setup`.")
"""


@pytest.fixture
def no_early_starts(monkeypatch):
    """Where `run` is made up, no process is started for the next bench."""
    monkeypatch.setattr(command, "start_early", lambda kind, name: None)


def distributions(names):
    """With all that these need, by their normalised names."""
    found, left = set(), list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found.add(name)
            try:
                needs = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            left += [re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need]
    return found


@pytest.fixture(scope="module")
def bare_machine(tmp_path_factory):
    """A folder that, on the path of a process, hides every package but those that `make gpu` may need."""
    folder, kept = tmp_path_factory.mktemp("bare"), distributions(NEEDED)
    hidden = [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & (kept | {"sparsity-workbook"})
    ]
    assert {"transformers", "jaxtyping", "beartype", "rich", "typer", "psutil", "datasets"} <= set(hidden)
    code = f"""
import sys
from importlib.machinery import PathFinder
HIDDEN = set({hidden!r})
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        if path is None and name in HIDDEN:
            return PathFinder.find_spec(name, [folder for folder in sys.path if "site-packages" not in folder])
        return self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Hiding, sys.meta_path)
"""
    (folder / "sitecustomize.py").write_text(code)
    return folder


@pytest.fixture
def in_a_bare_machine(bare_machine, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{bare_machine}:{tmp_path}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_one_line_says_so(in_a_bare_machine, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "course_lib.kernels.gpu", "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (command.NO_GPU, "")
    assert re.fullmatch(
        r"make gpu needs a GPU: torch \S+ finds no GPU with CUDA here\. Nothing was run\.\n", run.stdout
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(runtime.triton is None, reason="there is no triton to rehearse with")
def test_a_rehearsal_on_a_bare_machine(in_a_bare_machine, tmp_path, monkeypatch, capsys):
    """The tests of a kernel beside made-up tests and a made-up bench: whatever those do, the others are run."""
    (tmp_path / "test_made_up.py").write_text(MADE_UP_TESTS)
    (tmp_path / "made_up.py").write_text(MADE_UP_BENCH)
    (tmp_path / "never_set_up.py").write_text(NEVER_SET_UP)
    monkeypatch.setattr(command, "TEST_STEP_SECONDS", 15)
    asked = ["--rehearse", "--out", str(tmp_path / "out"), "--benches", "made_up", "never_set_up"]
    asked += ["course_lib.kernels.bench.kv"]
    assert command.main([*asked, "--tests", "wanda_mask", str(tmp_path / "test_made_up.py")]) == 1
    got, said = json.loads((tmp_path / "out" / "gpu.json").read_text()), capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gpu.json"]
    assert got["complete"]
    assert got["device"]["torch"] == torch.__version__
    assert set(got["ceilings"]["matmul_flops_per_second"]) == set(report.TYPES)
    assert got["ceilings"]["copy_bytes_per_second"] > 0

    kernel = got["tests"]["wanda_mask"]
    assert (kernel["status"], kernel["failed"], kernel["broken"]) == ("right", 0, {})
    assert all(kernel["by_type"][kind]["passed"] >= 4 for kind in report.TYPES)  # four cases, launched
    made_up = got["tests"]["test_made_up"]
    assert (made_up["status"], made_up["passed"], made_up["failed"]) == ("broken", 3, 1)
    crash, hang = made_up["broken"].items()
    assert crash[0].endswith("::test_crash")
    assert "killed by SIGABRT" in crash[1]
    assert hang[0].endswith("::test_hang")
    assert "hung: no end after 15 s" in hang[1]
    assert "assert 1 == 2" in made_up["failures"][0]["message"]

    bench = got["benches"]["made_up"]
    rows = {(row["contest"], row["side"]): row for row in bench["rows"]}
    assert rows["right", "kernel"]["right"]
    assert rows["right", "kernel"]["bound_seconds"] == pytest.approx(20 / got["ceilings"]["copy_bytes_per_second"])
    assert rows["refused", "dense"]["right"]
    assert bench["refused"] == {"refused: kernel": "RuntimeError: out of resource: shared memory"}
    assert rows["goes on from where it was", "kernel"]["right"]
    assert (rows["wrong", "kernel"]["verdict"], rows["wrong", "kernel"]["relative_error"]) == ("wrong", 0.5)
    assert rows["unwritten", "kernel"]["verdict"] == "wrong"
    assert rows["last", "kernel"]["right"]
    assert [*bench["broken"]] == ["crash"]
    assert bench["other_numbers"]["right"] == {"dense": 0.0, "kernel": 0.0}
    assert bench["other_numbers"]["refused on other numbers"] == {"dense": 0.0, "kernel": None}
    assert "bench made_up: refused on other numbers, other numbers: kernel" in got["wrong"]
    assert got["benches"]["kv"]["message"] == "it needs transformers, which is not installed"
    never = got["benches"]["never_set_up"]
    assert (never["status"], never["message"]) == ("absent", "The model is not there. Run `course setup`.")
    assert f"{len(got['wrong'])} wrong." in said
    assert not any(line.startswith(("tests wanda_mask", "bench kv")) for line in got["wrong"])


def test_all_benches_but_those_of_the_model_load_on_a_bare_machine(in_a_bare_machine):
    """With one contest of each, in small."""
    code = """
import sys, torch
from course_lib.kernels.gpu import __main__ as command, parts
sys.path.append(str(parts.ROOT / "kernels/gpu/stand_ins"))
from course_lib.kernels.timing.rows import relative_errors
for name in command._parts(command._arguments([]))[1]:
    try:
        module = parts.import_module(name)
    except ModuleNotFoundError as error:
        print(name, "needs", error.name)
    else:
        print(name, max(relative_errors(next(module.contests(parts._place({"rehearse": True}, 0)))).values()) < 1e-5)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    of_models = {name for name, what in said.items() if what == "needs transformers"}
    assert {
        "course_lib.kernels.bench.kv",
        "course_lib.kernels.bench.moe",
        "course_lib.kernels.bench.structured",
    } <= of_models
    of_kernels = {name for name in of_models if name.count(".") > 3 and ".end_to_end." not in name}
    assert of_kernels == set(), "the bench of a kernel needs no model"
    said = {name: what for name, what in said.items() if name not in of_models}
    assert len(said) >= 7
    assert set(said.values()) == {"True"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--out", "/a/folder"], "make gpu"),
        (["--rehearse"], "python3 -m course_lib.kernels.gpu --rehearse"),
        (["--benches", "--tests", "a", "b"], "python3 -m course_lib.kernels.gpu --tests a b --benches"),
    ],
)
def test_the_report_says_the_command_without_the_folder(asked, said):
    assert command._command(command._arguments(asked)) == said


def test_every_kernel_and_bench_is_found_and_the_benches_share_what_is_left():
    tests, benches = command._parts(command._arguments([]))
    names = [part.name for part in tests]
    assert {"nm_matmul", "decode_attention"} <= set(names)
    assert not {"runtime", "checks"} & set(names)
    folder = ROOT / "tests" / "kernels"
    without = [name for name in names if not name.endswith(".py") and not (folder / f"test_{name}.py").exists()]
    assert set(without) <= {"line_masses", "smallest_set"}, "only those that the tests of all kernels are enough for"
    assert all((ROOT / name).exists() for name in names if name.endswith(".py"))
    assert "hopper_prefill" in names
    assert "tests/kernels/dispatched/test_every_method_on_kernels.py" in names
    assert {"course_lib.kernels.bench.weights.nm_matmul", "course_lib.kernels.bench.sparsegpt"} <= set(benches)
    assert not {"course_lib.kernels.timing.contest", "course_lib.kernels.timing.rows"} & set(benches)


def test_nine_minutes_are_enough_whatever_hangs():
    """Tests that all hang leave time for the benches, and benches that all hang share it."""
    assert command.DEVICE_SECONDS + command.TEST_SECONDS <= command.SECONDS - 180
    assert command.SECONDS < 9 * 60 - 20
    assert parts.BENCH_SECONDS < command.BENCH_SECONDS


@pytest.mark.skipif(runtime.triton is None, reason="there is no triton")
def test_before_the_benches_every_setting_is_run_once_and_none_is_timed():
    from triton.runtime.autotuner import Autotuner, OutOfResources

    ran, timed = [], Autotuner._bench

    class Kernel:
        def run(self, *arguments, **named):
            ran.append((arguments, named))
            if named["BLOCK"] > 64:
                raise OutOfResources(3, 2, "shared memory")

    tuner = SimpleNamespace(fn=Kernel())
    with parts._untimed():
        for block, seconds in ((64, 0.0), (128, math.inf)):
            config = triton.Config({"BLOCK": block}, num_warps=2)
            assert Autotuner._bench(tuner, 7, config=config, N=3) == [seconds] * 3
    assert Autotuner._bench is timed
    assert [(arguments, named["N"], named["BLOCK"], named["num_warps"]) for arguments, named in ran] == [
        ((7,), 3, 64, 2),
        ((7,), 3, 128, 2),
    ]


@pytest.mark.usefixtures("no_early_starts")
def test_with_little_time_the_first_benches_are_timed_and_the_others_said_to_be_left_out(tmp_path, monkeypatch, capsys):
    given = []
    device = {"record": "device", "name": "made up", "driver": None, "torch": "", "triton": ""}

    def run(part, settings, earlier=(), waiting=None):
        if part.kind == "bench":
            given.append((part.name, part.seconds, settings["seconds"]))
            monkeypatch.setattr(command, "LEAST_SECONDS", 1e6)  # as if it had taken all that was left
        return process.Outcome([device] if part.kind == "device" else [{"record": "end"}], {}, 0.0)

    monkeypatch.setattr(command, "run", run)
    asked = ["--rehearse", "--out", str(tmp_path), "--seconds", "30", "--tests", "--benches", "first", "second"]
    assert command.main(asked) == 0
    ((name, seconds, of_contests),) = given
    assert (name, seconds) == ("first", command.START_SECONDS + of_contests)
    assert seconds == pytest.approx(30 - command.USUAL_SECONDS, abs=2), "the second would have got the rest"
    assert json.loads((tmp_path / "gpu.json").read_text())["benches"]["second"]["message"] == "no time was left for it"


@pytest.mark.usefixtures("no_early_starts")
def test_a_bench_that_cannot_run_is_told_at_once_and_one_that_was_cut_goes_on_at_the_end(tmp_path, monkeypatch):
    ran = []
    device = {"record": "device", "name": "made up", "driver": None, "torch": "", "triton": ""}
    begun, stopped = {"record": "begin", "name": "a contest"}, {"record": "stopped", "message": "5 s were up"}
    wrong = {"record": "checked", "name": "a contest", "errors": {"kernel": (2.0, False)}}

    def run(part, settings, earlier=(), waiting=None):
        if part.kind == "device":
            return process.Outcome([device], {}, 0.0)
        if part.kind == "prepare":
            absent = [{"record": "absent", "message": parts.NOTHING}]
            return process.Outcome(absent if part.name == "of_a_processor" else [], {}, 0.0)
        ran.append((part.name, list(earlier)))
        cut = part.name == "cut" and not earlier
        return process.Outcome([begun, wrong, *([stopped] if cut else [])], {"hung": "at first"} if cut else {}, 1.0)

    monkeypatch.setattr(command, "run", run)
    benches = ["--benches", "cut", "of_a_processor", "whole"]
    assert command.main(["--out", str(tmp_path), "--tests", *benches]) == 1
    assert ran == [("cut", []), ("whole", []), ("cut", [begun, wrong])]
    got = json.loads((tmp_path / "gpu.json").read_text())
    told = got["benches"]["of_a_processor"]
    assert (told["status"], told["message"]) == ("absent", "none of its contests is for this device")
    assert got["benches"]["cut"]["stopped"] is None
    assert (got["benches"]["cut"]["broken"], got["benches"]["cut"]["seconds"]) == ({"hung": "at first"}, 2.0)
    assert got["wrong"] == [
        "bench whole: a contest, other numbers: kernel",
        "bench cut: a contest, other numbers: kernel",
        "bench cut: hung: at first",
    ]


def test_a_bench_goes_on_behind_what_was_timed(tmp_path, monkeypatch):
    """The second process times what the first had not begun, then checks all on other numbers."""
    (tmp_path / "made_up.py").write_text(MADE_UP_BENCH.replace("os.abort", "lambda: torch.ones(2)"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    limit = {"name": "a", "flops_per_second": 1e9, "bytes_per_second": 1e9, "source": "made up"}
    settings = {"rehearse": True, "limit": limit, "seconds": 0.0}
    part = process.Part("bench", "made_up", 60, 60, {})
    first = process.run(part, settings)
    assert [record["record"] for record in first.records] == ["settings", "stopped", "unchecked", "end"]
    timed = [{"record": "begin", "name": "right"}, {"record": "contest", "name": "right", "rows": []}]
    second = process.run(part, settings | {"seconds": 30.0}, timed)
    assert second.records[:2] == timed
    contests = [record["name"] for record in second.records if record["record"] == "contest"]
    assert contests[:2] == ["right", "refused"]
    assert len(contests) == len(set(contests)) == 8
    assert [record["name"] for record in second.records if record["record"] == "checked"] == contests


def test_a_bench_with_no_contest_for_the_device_says_so(tmp_path, monkeypatch):
    (tmp_path / "of_a_gpu.py").write_text("def contests(place): yield from ()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for kind in (parts.prepare, parts.bench):
        path = tmp_path / f"{kind.__name__}.jsonl"
        path.touch()
        limit = {"name": "a", "flops_per_second": 1e9, "bytes_per_second": 1e9, "source": "made up"}
        kind("of_a_gpu", parts.Records(path), {"rehearse": True, "limit": limit})
        told = [record for record in process.read(path) if record["record"] == "absent"]
        assert [record["message"] for record in told] == [parts.NOTHING]
        assert process.read(path)[-1]["record"] == "end"


@pytest.mark.usefixtures("no_early_starts")
def test_a_bench_that_asks_for_more_time_gets_it_as_long_as_there_is_any(tmp_path, monkeypatch):
    """The others share what it leaves."""
    given, decoding = [], "course_lib.kernels.bench.end_to_end.decoding"
    device = {"record": "device", "name": "made up", "driver": None, "torch": "", "triton": ""}

    def run(part, settings, earlier=(), waiting=None):
        if part.kind == "bench":
            given.append((part.name, round(part.seconds), round(settings["seconds"])))
        return process.Outcome([device] if part.kind == "device" else [{"record": "end"}], {}, 0.0)

    monkeypatch.setattr(command, "run", run)
    asked = ["--rehearse", "--out", str(tmp_path), "--tests", "--benches", decoding, *("made_up",) * 9]
    command.main([*asked, "--seconds", "300"])
    most = command._bench_seconds(decoding)
    assert command.BENCH_SECONDS < most < 300 - 9 * command.USUAL_SECONDS
    assert given[0] == (decoding, most, most - command.START_SECONDS)
    assert given[1][1] == command.BENCH_SECONDS
    given.clear()
    command.main([*asked, "--seconds", "120"])
    cut = 120 - 9 * command.USUAL_SECONDS  # so that the others have their time
    assert cut - 2 <= given[0][1] <= cut
    given.clear()
    command.main([*asked, "--seconds", "50"])  # which the others would take up
    assert [name for name, *_ in given] == ["made_up"] * 9 + [decoding], "it gets what the others leave"
    assert given[0][1] == command.LEAST_SECONDS


def test_a_process_that_waits_for_its_settings_is_timed_from_there_and_started_again_after_a_crash(
    tmp_path, monkeypatch
):
    (tmp_path / "imported.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.done').touch()\n")
    (tmp_path / "waits.py").write_text("import imported\n" + MADE_UP_BENCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    waiting = process.start_early("bench", "waits")
    folder, begin = Path(waiting.folder.name), time.monotonic()
    while not (tmp_path / "imported.done").exists():
        assert time.monotonic() < begin + 60
        time.sleep(0.05)
    assert waiting.process.poll() is None, "it waits"
    assert process.read(folder / "records.jsonl") == []
    limit = {"name": "a", "flops_per_second": 1e9, "bytes_per_second": 1e9, "source": "made up"}
    settings = {"rehearse": True, "limit": limit, "seconds": 30.0}
    outcome = process.run(process.Part("bench", "waits", 60, 60, {}), settings, waiting=waiting)
    assert list(outcome.broken) == ["crash"]
    assert "killed by SIGABRT" in outcome.broken["crash"]
    contests = [record["name"] for record in outcome.records if record["record"] == "contest"]
    assert contests[:1] + contests[-1:] == ["right", "last"], "the second process goes on after the crash"
    assert len(contests) == len(set(contests)) == 7
    assert outcome.records[-1] == {"record": "end"}
    assert waiting.process.returncode is not None
    assert not folder.exists()


def test_a_process_that_waits_in_vain_is_ended():
    waiting = process.start_early("bench", "no_such_module")
    waiting.discard()
    assert waiting.process.returncode == -signal.SIGKILL
    assert not Path(waiting.folder.name).exists()
    assert waiting.process not in process._running


def test_a_bench_that_gets_no_turn_leaves_no_process(tmp_path, monkeypatch):
    """The whole model is put off; the process that was started for it is not given to another bench."""
    given, started, discarded = [], [], []
    device = {"record": "device", "name": "made up", "driver": None, "torch": "", "triton": ""}

    def start_early(kind, name):
        started.append(name)
        return SimpleNamespace(name=name, discard=lambda: discarded.append(name))

    def run(part, settings, earlier=(), waiting=None):
        if part.kind == "bench":
            given.append((part.name, waiting and waiting.name))
        return process.Outcome([device] if part.kind == "device" else [{"record": "end"}], {}, 0.0)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "start_early", start_early)
    asked = ["--rehearse", "--out", str(tmp_path), "--seconds", "30", "--tests", "--benches"]
    command.main([*asked, "a", "course_lib.kernels.bench.end_to_end.x", "b", "c", "d"])
    whole_model = "course_lib.kernels.bench.end_to_end.x"
    assert started == [whole_model, "c", "d"]
    assert discarded == [whole_model]
    assert given == [("a", None), ("b", None), ("c", "c"), ("d", "d"), (whole_model, None)]


@pytest.mark.skipif(runtime.triton is None, reason="there is no triton to prepare with")
def test_sides_that_are_timed_alone_are_recorded_one_by_one_and_prepared_in_small(tmp_path, monkeypatch):
    (tmp_path / "alone_bench.py").write_text(ALONE_BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    limit = {"name": "a", "flops_per_second": 1e9, "bytes_per_second": 1e9, "source": "made up"}
    paths = [tmp_path / f"{kind}.jsonl" for kind in ("prepare", "bench")]
    for kind, path in zip((parts.prepare, parts.bench), paths, strict=True):
        path.touch()
        kind("alone_bench", parts.Records(path), {"rehearse": True, "limit": limit})
    assert parts.import_module("alone_bench").LOG == ["small", "half", "fifth"]
    assert process.read(paths[0]) == [{"record": "end"}]
    records = process.read(paths[1])
    contests = [record for record in records if record["record"] == "contest"]
    assert [[row["side"] for row in record["rows"]] for record in contests] == [[], ["half"], ["fifth"]]
    entry, said = report._bench(process.Outcome(records, {}, 1.0))
    assert entry["absent"] == {"large: all": "does not fit: 137.4 GB"}
    assert [row["numbers"] for row in entry["rows"]] == [{"peak_bytes": 8e9}] * 2
    assert (entry["wrong"], entry["other_numbers"]) == ([], {})
    assert "    peak_bytes 8e+09" in "\n".join(said)


def test_all_tests_end_together_however_many_wait_for_a_turn(monkeypatch):
    given = []
    monkeypatch.setattr(command, "run", lambda part, settings: (given.append(part.seconds), time.sleep(0.05)))
    parts = [process.Part("tests", str(i), 240, 90, {}) for i in range(40)]
    assert len(list(command._side_by_side(parts, {}, time.monotonic() + 100))) == len(parts)
    assert all(seconds <= 100 for seconds in given)
    assert min(given) < max(given)


def test_a_part_that_never_starts_is_told_once(tmp_path):
    part = process.Part("bench", "no_such_module", 60, 60, {})
    outcome = process.run(part, {"rehearse": True, "limit": {}})
    assert outcome.records[0]["message"] == "it needs no_such_module, which is not installed"
    outcome = process.run(process.Part("nonsense", "x", 60, 60, {}), {})
    assert list(outcome.broken) == ["start"]
    assert "KeyError: 'nonsense'" in outcome.broken["start"]


def test_time_is_up_for_the_whole_part(tmp_path):
    (tmp_path / "test_slow.py").write_text("import time\ndef test_a(): time.sleep(60)\ndef test_b(): pass\n")
    begin = time.monotonic()
    outcome = process.run(process.Part("tests", str(tmp_path / "test_slow.py"), 6, 60, {}), {})
    assert time.monotonic() - begin < 30
    assert "reached its limit of 6 s" in next(iter(outcome.broken.values()))


def test_records_of_a_process_that_died_within_a_line(tmp_path):
    (tmp_path / "records").write_text('{"record": "begin", "name": "a"}\n{"record": "te')
    assert process.read(tmp_path / "records") == [{"record": "begin", "name": "a"}]


def test_the_report_has_no_nan_and_is_written_whole(tmp_path):
    written = report.Report(tmp_path / "gpu.json", "command")
    written.write(device={"share": float("nan")})
    assert json.loads((tmp_path / "gpu.json").read_text())["device"] == {"share": None}
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
