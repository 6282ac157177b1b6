"""Measure the long tables: each finished step is on disk before the next begins, so that nothing is measured twice.

The result is one JSON file: what was run (command, seed, sizes), where (machine, versions), how long each step took,
and the rows of each table. Until the last step is done it is called NAME.partial.json: a result is always whole.
"""

import importlib
import json
import pkgutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from course_lib import experiments
from course_lib.result_files import RESULTS, continued, heading, now, write

QUICK_RESULTS = Path("build") / "reproduce"

Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Step:
    """One resumable piece of work. `run(seed)` returns rows of plain data by table."""

    name: str
    run: Callable[[int], Tables]


@dataclass(frozen=True)
class Experiment:
    """`sizes` and `quick`, two of one dataclass, say how much is measured; `steps` turns either into the work to do."""

    title: str
    sizes: Any
    quick: Any
    steps: Callable[[Any], list[Step]]
    seed: int = 0


def names() -> list[str]:
    """The experiments there are."""
    return sorted(module.name for module in pkgutil.iter_modules(experiments.__path__))


def find(name: str) -> Experiment:
    """The experiment of that name, or a ValueError that lists them."""
    if name not in names():
        raise ValueError(f"got experiment {name!r}; expected one of {', '.join(names())}.")
    return importlib.import_module(f"{experiments.__name__}.{name}").EXPERIMENT


def run(name: str, out: Path | None = None, quick: bool = False, resume: bool = True) -> int:
    """Measure all steps that are not on disk yet; 0 when all are done, 130 when interrupted.

    Args:
        out: where the JSON goes; course_lib/results/NAME.json when None, build/reproduce/NAME.json for a quick run.
        quick: tiny samples, to see that every step works.
        resume: keep the steps that are finished. Without it everything is measured anew.
    """
    experiment, console = find(name), Console()
    sizes = experiment.quick if quick else experiment.sizes
    path = Path(out) if out else (QUICK_RESULTS if quick else RESULTS) / f"{name}.json"
    partial = path.with_suffix(".partial.json")
    command = f"course reproduce {name}{' --quick' if quick else ''}"
    result = heading(name, command, experiment.seed, asdict(sizes))
    if resume and (earlier := next((p for p in (partial, path) if p.exists()), None)):
        result = continued(json.loads(earlier.read_text(encoding="utf-8")), result, earlier)
    steps = experiment.steps(sizes)
    left = [step for step in steps if step.name not in result["steps"]]
    console.print(f"{experiment.title}: {len(steps)} steps, {len(steps) - len(left)} done already")
    try:
        measure(left, experiment.seed, result, partial, console)
    except KeyboardInterrupt:
        console.print(f"stopped; the finished steps are in {partial}. The same command goes on from there.")
        return 130
    if left or partial.exists():
        done = result["steps"]
        result["steps"] = {step.name: done[step.name] for step in steps} | done  # in their order
        write(result, path)
        partial.unlink(missing_ok=True)
    console.print(f"All steps are in {path}. `--no-resume` measures them anew.")
    return 0


def measure(steps: list[Step], seed: int, result: dict[str, Any], path: Path, console: Console) -> None:
    """Run the steps, writing the whole file after each."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=len(steps))
        for step in steps:
            bar.update(task, description=step.name)
            start = time.perf_counter()
            tables = step.run(seed)
            seconds = time.perf_counter() - start
            for table, rows in tables.items():
                result["tables"].setdefault(table, []).extend(rows)
            result["steps"][step.name] = {"seconds": round(seconds, 1), "finished": now()}
            write(result, path)
            console.print(f"  {step.name}: {seconds:.0f} s")
            bar.advance(task)
