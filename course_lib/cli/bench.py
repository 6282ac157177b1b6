"""`course bench`: time the kernels, compare them with their bounds, and list where sparsity is slower.

Each file in kernels/bench/ or in a folder of it with a function `contests(place)` is a bench: there is no list.
With a function `summary(rows)` it also has a closing sentence about all its contests.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console

import course_lib.kernels.bench
from course_lib import discover
from course_lib.cli import bench_table
from course_lib.kernels import runtime
from course_lib.kernels.timing.contest import Clock, Place
from course_lib.kernels.timing.rows import TOLERANCE, measure
from course_lib.measure import result_files
from course_lib.measure.machine import fastest_seconds, read_bytes_per_second
from course_lib.measure.progress import bar
from course_lib.measure.roofline import Device

SEED = 0
DTYPE = {"cpu": torch.float32, "cuda": torch.bfloat16}
FOLDER = Path("build/bench")


def run(names: list[str] | None = None, out: Path | None = None, quick: bool = False) -> int:
    """Time the benches; print a table and write a JSON file for each. Return 1 if a side computed a wrong result."""
    console, benches = Console(), _benches(names)
    if runtime.INTERPRETED:
        raise ValueError("TRITON_INTERPRET is set; expected kernels that run at full speed. Unset it and start again.")
    place = _place(quick)
    console.print(f"{runtime.reason()} First, the speed of this machine:")
    limit = roofline(place)
    console.print(
        f"{limit.name}: {limit.flops_per_second / 1e9:,.0f} GFLOP/s, {limit.bytes_per_second / 1e9:,.1f} GB/s"
    )
    clock, n_wrong = Clock(place, limit.bytes_per_second), 0
    for number, (name, bench) in enumerate(benches.items(), 1):
        result = _heading(name, limit, place)
        with bar(console=console) as shown:
            task = shown.add_task("", total=None)
            for contest in bench.contests(_place(quick)):  # the same numbers, whichever benches run
                shown.update(task, description=f"bench {number} of {len(benches)}: {name}, {contest.name}")
                rows = measure(contest, clock, limit, getattr(bench, "TOLERANCE", TOLERANCE)[place.dtype])
                result["tables"]["sides"] += rows
                result["absent"] |= {f"{contest.name}: {side}": why for side, why in contest.absent.items()}
                n_wrong += sum(not row["right"] for row in rows)
        path = (out or FOLDER) / f"{name}.json"
        result_files.write(result, path)
        bench_table.show(console, name, result)
        if hasattr(bench, "summary"):
            console.print(bench.summary(result["tables"]["sides"]), markup=False)
        console.print(f"Written to {path}.\n")
    console.print(
        "A sparse implementation is faster only where its row says 'faster'. To keep a result, move its JSON file to "
        "kernels/bench/results/ as cpu_NAME.json."
    )
    return 1 if n_wrong else 0


def roofline(place: Place) -> Device:
    """Measure this machine: a square product in the type of the bench, and reading a matrix once."""
    n = {"cpu": 1536, "cuda": 8192}[place.device.type]
    left, right = place.randn(n, n), place.randn(n, n)
    flops = 2 * n**3 / fastest_seconds(lambda: left @ right, place.device)
    machine = result_files.machine()
    kind = str(place.dtype).removeprefix("torch.")
    return Device(
        machine["gpu"] if place.device.type == "cuda" else machine["cpu"],
        flops,
        read_bytes_per_second(place.device),
        f"measured in this run: {n} x {n} product in {kind}; matrix times vector in float32",
    )


def _benches(names: list[str] | None) -> dict[str, ModuleType]:
    found = discover.modules(course_lib.kernels.bench) + discover.nested(course_lib.kernels.bench)
    benches = {_name(module): module for module in sorted(found, key=_name) if hasattr(module, "contests")}
    unknown = [name for name in names or () if name not in benches]
    if unknown:
        raise ValueError(f"got bench {', '.join(unknown)}; expected one of {', '.join(benches)}, or no name for all.")
    return {name: bench for name, bench in benches.items() if not names or name in names}


def _name(module: ModuleType) -> str:
    return module.__name__.split(".")[-1]


def _place(quick: bool) -> Place:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Place(device, DTYPE[device.type], quick, torch.Generator().manual_seed(SEED))


def _heading(name: str, limit: Device, place: Place) -> dict[str, Any]:
    command = " ".join(["course bench", *sys.argv[2:]])
    result = result_files.heading(f"bench {name}", command, SEED, {"quick": place.quick, "dtype": str(place.dtype)})
    result["machine"] |= {"triton": getattr(runtime.triton, "__version__", None), "kernels": runtime.mode()}
    roofline = {"flops_per_second": limit.flops_per_second, "bytes_per_second": limit.bytes_per_second}
    result["tables"]["sides"] = []
    return result | {"roofline": roofline | {"device": limit.name, "source": limit.source}, "absent": {}}
