"""Parts of `make gpu`, each in its own process: `python -m course_lib.kernels.gpu.parts KIND NAME RECORDS SETTINGS`.

Each kind is a function of this module. A step that an earlier process of the same part began is skipped, because it
ended that process. Only torch, triton, numpy and pytest are needed: the folder `stand_ins` replaces the packages that
annotations use.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "kernels"
BENCH_SECONDS = 35.0  # default limit of a bench's contests, without the time to import modules and start CUDA
CONTEST_SECONDS = 0.5  # per contest, unless the minimum number of repetitions takes longer
SEEDS = (0, 1)  # of the numbers that are timed, and of other numbers on which each side is checked again
COPIED = {"cpu": 2**24, "cuda": 2**31}  # bytes of the tensor that is copied: much more than any cache
SQUARE = {"cpu": 256, "cuda": 8192}  # size of the matrices whose product measures the peak arithmetic rate
REPETITIONS = 20
NOTHING = "none of its contests is for this device"
BROKEN = 3  # exit code of a process in which every further CUDA call fails


class Records:
    """A file of JSON lines: a record for each step that begins, and for each result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.begun = {line["name"] for line in lines if line["record"] == "begin"}
        self.timed = {line["name"] for line in lines if line["record"] == "contest"}

    def write(self, record: str, **values: Any) -> None:
        line = json.dumps({"record": record} | values, allow_nan=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def begin(self, name: str) -> bool:
        """Record the beginning of a step; return False where an earlier process began it."""
        if name in self.begun:
            return False
        self.begun.add(name)
        self.write("begin", name=name)
        return True


def device(name: str, records: Records, settings: dict[str, Any]) -> None:
    """Record the device and its peak rates: bytes per second of a copy, FLOP/s of a large product in each type."""
    import torch
    from course_lib.kernels.gpu.report import environment
    from course_lib.kernels.timing.contest import Clock

    if not settings["rehearse"] and not torch.cuda.is_available():
        records.write("absent", message=f"torch {torch.__version__} finds no GPU with CUDA here")
        records.write("end")
        return
    place = _place(settings, seed=0)
    kind = place.device.type
    records.write("device", **environment(place.device))
    clock = Clock(place, 3e12)

    def seconds(run: Callable[[], Any]) -> float:
        run()
        return statistics.median(clock.seconds(run) for _ in range(REPETITIONS))

    source = torch.randn(COPIED[kind] // 4, generator=place.generator, device=place.device)
    target = torch.empty_like(source)
    records.write("copy", bytes_per_second=2 * source.nbytes / seconds(lambda: target.copy_(source)))
    del source, target
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        left, right = (replace(place, dtype=dtype).randn(SQUARE[kind], SQUARE[kind]) for _ in range(2))
        rate = 2 * SQUARE[kind] ** 3 / seconds(lambda left=left, right=right: left @ right)
        records.write("matmul", dtype=_word(dtype), flops_per_second=rate)
    records.write("end")


def tests(name: str, records: Records, settings: dict[str, Any]) -> None:
    """Run the tests of one kernel (its own file and the tests of every kernel), or all tests of a file, by its path."""
    import pytest

    files = [Path(name)] if name.endswith(".py") else [TESTS / "test_every_kernel.py", TESTS / f"test_{name}.py"]
    files = [file for file in files if file.exists()]  # some kernels have no file of their own

    class Recorder:
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items[:] = [item for item in items if _concerns(item, name) and item.nodeid not in records.begun]

        def pytest_runtest_logstart(self, nodeid: str) -> None:
            records.begin(nodeid)

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or not report.passed:
                last_lines = [] if report.passed else report.longreprtext.strip().splitlines()[-12:]
                values = {"name": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 3)}
                records.write("test", **values, message="\n".join(last_lines))

        def pytest_runtest_logfinish(self) -> None:
            _end_if_broken(records)

    command = [*map(str, files), "-p", "no:cacheprovider", "--tb=short", "-o", "addopts=", f"--rootdir={ROOT}"]
    code = pytest.main([*command, "-c", str(ROOT / "pyproject.toml")], plugins=[Recorder()])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        records.write("end")


def prepare(name: str, records: Records, settings: dict[str, Any]) -> None:
    """Compile all autotuning settings of a bench's kernels without timing them.

    A bench that fills the memory has a function `prepared(place)`, which runs the same kernels in smaller contests.
    A bench that cannot run on this machine is recorded as absent, so that no time is reserved for it.
    """
    with _absent(records), _untimed(), _noted(records, "contests"):
        n_contests, module = 0, import_module(name)
        for contest in getattr(module, "prepared", module.contests)(_place(settings, SEEDS[0])):
            n_contests += 1
            for side in contest.sides if not contest.once else ():
                with _noted(records, side.name), side.opened() if side.opened else nullcontext(side.run) as run:
                    run()
        if n_contests == 0:
            records.write("absent", message=NOTHING)
    records.write("end")


@contextmanager
def _noted(records: Records, what: str) -> Iterator[None]:
    """Record an error and go on: the bench will report it again, and run its other sides."""
    try:
        yield
    except (ModuleNotFoundError, FileNotFoundError):  # see `_absent`
        raise
    except Exception as error:
        records.write("unprepared", message=f"{what}: {type(error).__name__}: {error}"[:1000])


@contextmanager
def _absent(records: Records) -> Iterator[None]:
    """Record a bench as absent where a package or the default model is missing, which is not a failure."""
    try:
        yield
    except ModuleNotFoundError as error:
        records.write("absent", message=f"it needs {error.name}, which is not installed")
    except FileNotFoundError as error:
        records.write("absent", message=str(error))


@contextmanager
def _untimed() -> Iterator[None]:
    """Let triton's autotuner run each setting once without timing it. All get equal times, or inf where too large."""
    from triton.runtime.autotuner import Autotuner, OutOfResources

    def run_once(tuner: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
        try:
            tuner.fn.run(*arguments, **named, **config.all_kwargs())
        except OutOfResources:
            return [math.inf] * 3
        return [0.0] * 3

    original, Autotuner._bench = Autotuner._bench, run_once
    try:
        yield
    finally:
        Autotuner._bench = original


def bench(name: str, records: Records, settings: dict[str, Any]) -> None:
    """Time all contests of one bench, with lower bounds from the peak rates, then check them on other numbers."""
    with _absent(records):
        _time(import_module(name), records, settings)
    records.write("end")


def _time(module: Any, records: Records, settings: dict[str, Any]) -> None:
    """Time the contests of a bench until its time is over; then check each timed contest with the second seed."""
    import torch
    from course_lib.kernels.timing.contest import Clock
    from course_lib.kernels.timing.rows import TOLERANCE, measured, relative_errors, verdict

    from course_lib.measure.roofline import Device

    place, limit = _place(settings, SEEDS[0]), Device(**settings["limit"])
    tolerance = getattr(module, "TOLERANCE", TOLERANCE)[place.dtype]
    dtype = getattr(module, "DTYPE", place.dtype)  # some benches have a fixed type
    records.write("settings", dtype=_word(dtype), tolerance=tolerance, seeds=SEEDS)
    seconds = settings.get("seconds", BENCH_SECONDS)
    clock, end = Clock(place, limit.bytes_per_second), time.monotonic() + seconds
    n_contests = 0
    for contest in module.contests(place):
        n_contests += 1
        if time.monotonic() > end:
            records.write("stopped", message=f"the limit of {seconds:.0f} s was reached before {contest.name!r}")
            break
        if records.begin(contest.name):
            refused: dict[str, str] = {}
            for rows in measured(contest, clock, limit, tolerance, CONTEST_SECONDS, refused):
                rows = [row | {"verdict": verdict(row)} for row in rows]
                records.write("contest", name=contest.name, rows=rows, absent=contest.absent, refused=refused)
                refused.clear()
                _end_if_broken(records)
            records.timed.add(contest.name)
        del contest
    if n_contests == 0:
        records.write("absent", message=NOTHING)
    for contest in () if getattr(module, "CHECKED_ONCE", False) else module.contests(_place(settings, SEEDS[1])):
        if time.monotonic() > end:
            message = f"the limit of {seconds:.0f} s was reached before {contest.name!r} on other numbers"
            records.write("unchecked", message=message)
            break
        if contest.once or contest.name not in records.timed or not records.begin(f"{contest.name}, other numbers"):
            continue
        refused = {}
        errors = relative_errors(contest, refused) | dict.fromkeys(refused, math.nan)
        errors = {side: (error, error <= tolerance) for side, error in errors.items()}
        records.write("checked", name=contest.name, errors=errors)
        _end_if_broken(records)
    if place.device.type == "cuda":
        records.write("memory", peak_bytes=torch.cuda.max_memory_allocated())


def _concerns(item: Any, name: str) -> bool:
    """Return whether a test is about this kernel: from its own file, or a test of every kernel with this parameter."""
    if item.path.name != "test_every_kernel.py":
        return True
    module = getattr(item, "callspec", None) and item.callspec.params.get("module")
    return module is not None and module.__name__.split(".")[-1] == name


def _place(settings: dict[str, Any], seed: int) -> Any:
    """Return the GPU with a generator on it, or for a rehearsal the CPU with small sizes."""
    import torch
    from course_lib.kernels.timing.contest import Place

    torch.backends.cuda.matmul.allow_tf32 = False  # tf32 has 11 significant bits, the reference in float32 has 24
    rehearse = settings["rehearse"]
    device_type, dtype = ("cpu", torch.float32) if rehearse else ("cuda", torch.bfloat16)
    return Place(torch.device(device_type), dtype, rehearse, torch.Generator(device_type).manual_seed(seed))


def _synchronise() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _end_if_broken(records: Records) -> None:
    """End this process if CUDA is broken: after an illegal address all calls fail, and a new process continues."""
    try:
        _synchronise()
    except Exception as error:
        print(error)
        records.write("broken", message=str(error)[:1000])
        os._exit(BROKEN)


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _settings(name: str, settings: str) -> dict[str, Any]:
    """Parse the settings; if they are @PATH, import modules, then wait for this file, which starts the part."""
    if not settings.startswith("@"):
        return json.loads(settings)
    with suppress(ImportError):  # `bench` reports a missing package
        import_module("torch"), import_module(name)
    while not (file := Path(settings[1:])).exists():
        time.sleep(0.02)
    return json.loads(file.read_text(encoding="utf-8"))


def main(kind: str, name: str, path: str, settings: str) -> None:
    """Run one part and append its records to the file at `path`."""
    sys.path.append(str(Path(__file__).with_name("stand_ins")))
    part = {"device": device, "tests": tests, "prepare": prepare, "bench": bench}[kind]
    part(name, Records(Path(path)), _settings(name, settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
