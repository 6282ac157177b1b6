"""`python3 -m course_lib.kernels.gpu --out FOLDER`: measure the device, test all kernels, then run the benches.

Exit code: 0 if everything is right, 1 if something is wrong, 2 if there is no GPU.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib.kernels.gpu.process import ROOT, Outcome, Part, Record, Waiting, run, start_early
from course_lib.kernels.gpu.report import Report

SECONDS = 510  # default limit for all parts together: less than 9 minutes
DEVICE_SECONDS, TEST_SECONDS, BENCH_SECONDS = 60, 120, 60  # limit of one part
TEST_STEP_SECONDS, BENCH_STEP_SECONDS = 90, 40  # limit of one test, which may compile many kernels, and of one contest
PREPARE_SECONDS = 45  # limit for compiling the kernels of a bench
START_SECONDS, END_SECONDS = 8, 3  # of a bench outside its contests; the second if modules are already imported
LEAST_SECONDS, USUAL_SECONDS = 8, 9  # needed to start a bench; reserved for each bench that follows
NO_TIME = Outcome([{"record": "absent", "message": "no time was left for it"}], {}, 0.0)
SHORT = ("stopped", "unchecked")  # the records of a bench that ran out of time
NO_GPU = 2
END_TO_END = ".end_to_end."  # part of the name of a bench of whole models
DISPATCHED = ROOT / "tests" / "kernels" / "dispatched"  # tests of the library's methods with kernels on and off
INTERPRETED = {"TRITON_INTERPRET": "1"}


def main(arguments: list[str] | None = None) -> int:
    """Run everything that the arguments ask for, write gpu.json after each part, and return the exit code."""
    options = _arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit handlers then end the processes of all parts
    end, settings = time.monotonic() + options.seconds, {"rehearse": options.rehearse}
    report = Report(Path(options.out) / "gpu.json", _command(options))
    outcome = run(Part("device", "device", DEVICE_SECONDS, DEVICE_SECONDS, {}), settings)
    if (why := _absent(outcome)) is not None:
        print(f"make gpu needs a GPU: {why}. Nothing was run.")
        return NO_GPU
    settings["limit"] = _take_device(report, outcome)
    tests, benches = _parts(options)
    # Kernels of the benches are compiled in parallel with the tests and put into triton's cache. A kernel that fails to
    # compile is only printed here: its bench reports it.
    one_thread = {"OMP_NUM_THREADS": "1"}
    ready = [Part("prepare", name, PREPARE_SECONDS, PREPARE_SECONDS, one_thread) for name in benches]
    until = time.monotonic() + TEST_SECONDS * options.seconds / SECONDS
    for part, outcome in _side_by_side([*tests, *([] if options.rehearse else ready)], settings, until):
        if part.kind == "prepare":
            failed = [r["message"] for r in outcome.records if r["record"] == "unprepared"]
            for why in failed + [how.splitlines()[0] for how in outcome.broken.values()]:
                print(f"prepare {part.name.split('.')[-1]}: {why}", flush=True)
            if not any(record["record"] == "absent" for record in outcome.records):
                continue
            benches.remove(part.name)
            part = replace(part, kind="bench")
        print(*report.add(part, outcome), sep="\n", flush=True)
    _time(benches, report, settings, end)
    report.write(complete=True)
    wrong = report.content["wrong"]
    print(f"\n{len(wrong)} wrong. {report.content['seconds']:.0f} s. Written to {report.path}.")
    print(*(f"  {line.splitlines()[0]}" for line in wrong), sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def _time(benches: list[str], report: Report, settings: dict[str, Any], end: float) -> None:
    """Run the benches one by one. Benches of whole models only get time that the kernels' benches do not need."""
    short, waiting = [], None
    for i, name in enumerate(benches):
        seconds_left, n_others = end - time.monotonic(), len(benches) - i - 1
        seconds, is_whole_model = seconds_left - USUAL_SECONDS * n_others, END_TO_END in name
        # With little time left, time some kernels completely instead of all kernels partly.
        seconds = seconds if is_whole_model else max(LEAST_SECONDS, seconds)
        early, waiting = waiting, None
        if min(seconds, seconds_left) < LEAST_SECONDS:
            part, outcome = Part("bench", name, 0, 0, {}), NO_TIME
            if early is not None:
                early.discard()
        else:
            waiting = start_early("bench", benches[i + 1]) if n_others else None
            part, outcome = _bench(name, seconds, settings, waiting=early)
        print(*report.add(part, outcome), sep="\n", flush=True)
        if any(record["record"] in SHORT for record in outcome.records) or (is_whole_model and outcome is NO_TIME):
            short.append((name, outcome))
    for name, first in short:  # spend the remaining time on the benches that had too little
        if (seconds_left := end - time.monotonic()) < LEAST_SECONDS:
            break
        earlier = [] if first is NO_TIME else [r for r in first.records if r["record"] not in SHORT]
        part, outcome = _bench(name, seconds_left, settings, earlier)
        outcome = replace(outcome, broken=first.broken | outcome.broken, seconds=first.seconds + outcome.seconds)
        print(*report.add(part, outcome), sep="\n", flush=True)


def _bench(
    name: str,
    seconds: float,
    settings: dict[str, Any],
    earlier: Sequence[Record] = (),
    waiting: Waiting | None = None,
) -> tuple[Part, Outcome]:
    """Run one bench for at most `seconds`. Its contests get this limit minus the time to start and to end."""
    seconds = min(_bench_seconds(name), seconds)
    part = Part("bench", name, seconds, min(BENCH_STEP_SECONDS, seconds), {})
    contest_seconds = seconds - (START_SECONDS if waiting is None else END_SECONDS)
    return part, run(part, settings | {"seconds": max(1, contest_seconds)}, earlier, waiting)


def _bench_seconds(name: str) -> int:
    """Return the time limit of a bench: BENCH_SECONDS, unless its file has a line `GPU_SECONDS = ...`."""
    path = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
    limit = (
        re.search(r"^GPU_SECONDS = (\d+)", path.read_text(encoding="utf-8"), re.MULTILINE) if path.exists() else None
    )
    return int(limit[1]) if limit else BENCH_SECONDS


def _seconds(text: str) -> float:
    if not (seconds := float(text)) >= LEAST_SECONDS:
        raise argparse.ArgumentTypeError(f"got {text}; expected at least {LEAST_SECONDS}, the time of one bench")
    return seconds


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m course_lib.kernels.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="build/gpu", help="the folder for gpu.json")
    parser.add_argument("--rehearse", action="store_true", help="run small sizes on a CPU with interpreted kernels")
    parser.add_argument("--seconds", type=_seconds, default=SECONDS, help="time limit of the whole run (%(default)s)")
    parser.add_argument("--tests", nargs="*", help="the kernels to test, or test files; default: all")
    parser.add_argument("--benches", nargs="*", help="the benches to time; default: all")
    return parser.parse_args(arguments)


def _command(options: argparse.Namespace) -> str:
    """Return the command that reproduces the numbers, without the folder that they are written to."""
    parts = ["--rehearse"] if options.rehearse else []
    parts += [f"--seconds {options.seconds:g}"] if options.seconds != SECONDS else []
    for name in ("tests", "benches"):
        parts += [f"--{name}", *values] if (values := getattr(options, name)) is not None else []
    return " ".join(["python3 -m course_lib.kernels.gpu", *parts]) if parts else "make gpu"


def _absent(outcome: Outcome) -> str | None:
    """Return the reason why nothing can run, or None."""
    for record in outcome.records:
        if record["record"] == "absent":
            return record["message"]
    if any(record["record"] == "device" for record in outcome.records):
        return None
    return next(iter(outcome.broken.values()), "nothing was found").splitlines()[-1]


def _take_device(report: Report, outcome: Outcome) -> dict[str, Any]:
    """Write the device and its measured peak rates into the report; return these rates, which set all lower bounds."""
    device = next(record for record in outcome.records if record["record"] == "device")
    copied = [record["bytes_per_second"] for record in outcome.records if record["record"] == "copy"]
    rates = {r["dtype"]: r["flops_per_second"] for r in outcome.records if r["record"] == "matmul"}
    ceilings = {"copy_bytes_per_second": copied[0] if copied else None, "matmul_flops_per_second": rates}
    report.content["wrong"] += [f"device: {step}: {how}" for step, how in outcome.broken.items()]
    report.write(device={name: value for name, value in device.items() if name != "record"}, ceilings=ceilings)
    print(f"{device['name']}, driver {device['driver']}, torch {device['torch']}, triton {device['triton']}")
    print(", ".join(f"{rate / 1e12:,.1f} TFLOP/s {kind}" for kind, rate in rates.items()), end=", ")
    print(f"copy {copied[0] / 1e12 if copied else 0:,.2f} TB/s", flush=True)
    # Without a measured rate, an unreachably high one makes the bound meaningless but keeps the speedups.
    best = {"flops_per_second": max(rates.values(), default=1e18), "bytes_per_second": copied[0] if copied else 1e15}
    return {"name": device["name"], "source": "measured in this run: largest product, copy"} | best


def _parts(options: argparse.Namespace) -> tuple[list[Part], list[str]]:
    """Find tests of kernels, tests of methods with kernels on and off, and benches, by their source text."""
    kernels = options.tests
    if kernels is None:
        kernels = [name.split(".")[-1] for name in _modules("kernels", "\ndef launch(")]
        kernels.append("hopper_prefill")  # launched by block_sparse_prefill
        kernels += [str(path.relative_to(ROOT)) for path in sorted(DISPATCHED.glob("test_*.py"))]
    modules = _modules("kernels/bench", "\ndef contests(")
    by_name = {name.split(".")[-1]: name for name in modules}
    # Whole models first: they show what the kernels are for, and take the longest.
    modules.sort(key=lambda name: END_TO_END not in name)
    benches = modules if options.benches is None else [by_name.get(name, name) for name in options.benches]
    # Many tests run in parallel, so each has one thread.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    environment |= INTERPRETED if options.rehearse else {}
    return [Part("tests", name, TEST_SECONDS, TEST_STEP_SECONDS, environment) for name in kernels], benches


def _modules(folder: str, sign: str) -> list[str]:
    """Return the names of the modules in a folder and its subfolders whose source contains `sign`."""
    paths = sorted((*(ROOT / folder).glob("*.py"), *(ROOT / folder).glob("*/*.py")), key=lambda path: path.stem)
    matching = [path.relative_to(ROOT) for path in paths if sign in path.read_text(encoding="utf-8")]
    return [".".join(("course_lib", *path.with_suffix("").parts)) for path in matching]


def _side_by_side(parts: list[Part], settings: dict[str, Any], end: float) -> Iterable[tuple[Part, Outcome]]:
    """Run parts in parallel and yield each when it ends: compiling needs CPU cores, and nothing is timed yet."""

    def run_in_time(part: Part) -> Outcome:  # a part that waited in the queue has less time left
        return run(replace(part, seconds=min(part.seconds, end - time.monotonic())), settings)

    with ThreadPoolExecutor(max(4, os.cpu_count() or 2)) as pool:
        under_way = {pool.submit(run_in_time, part): part for part in parts}
        for future in as_completed(under_way):
            yield under_way[future], future.result()


if __name__ == "__main__":
    sys.exit(main())
