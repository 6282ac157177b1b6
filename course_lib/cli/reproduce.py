"""Run long measurements: each finished step is on disk before the next begins, so that nothing is measured twice.

The result is one JSON file with command, seed, sizes, machine, versions, the duration of each step, and the rows of
each table. Until the last step is done it is called NAME.partial.json, so that NAME.json is always complete.
"""

import importlib
import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step
from course_lib.measure.progress import bar
from course_lib.measure.result_files import continued, heading, now, write
from course_lib.models import part_only
from course_lib.workbook.lookup import folder_of

LIBRARY = Path(__file__).parents[1]
# A lesson's folder experiments/ may contain other modules as well; elsewhere the file name decides.
PATTERNS = ("lessons/*/experiments/*.py", "lessons/*/experiment*.py")
TESTS = LIBRARY.parent / "tests" / "helpers"  # of a checkout: a synthetic class, on which the grader is measured


def files() -> dict[str, Path]:
    """Find the files of all experiments by name: each defines EXPERIMENT; experiment.py is named after its folder."""
    paths = [path for pattern in PATTERNS for path in LIBRARY.glob(pattern)]
    paths = [path for path in (*paths, *TESTS.glob("synthetic/experiment*.py")) if _defines_one(path)]
    return {path.stem.removeprefix("experiment").removeprefix("_") or path.parent.name: path for path in sorted(paths)}


def _defines_one(path: Path) -> bool:
    return "\nEXPERIMENT = " in path.read_text(encoding="utf-8")


def names() -> list[str]:
    """The names of the experiments."""
    return sorted(files())


def find(name: str) -> Experiment:
    """Load the experiment of that name; for another name, a ValueError lists them."""
    path = _file(name)
    root = LIBRARY.parent if path.is_relative_to(LIBRARY) else TESTS
    if str(root) not in sys.path:
        sys.path.append(str(root))
    module = path.relative_to(root).with_suffix("")
    return importlib.import_module(".".join(module.parts)).EXPERIMENT


def committed(name: str) -> Path:
    """Find the committed result of an experiment: NAME.json in its folder, or measured.json next to experiment.py."""
    path = _file(name)
    return path.with_name("measured.json" if path.stem == "experiment" else f"{name}.json")


def called(name: str) -> str:
    """Find an experiment by its own name, or by any name of a lesson that has one, or has one named after it.

    Raises:
        ValueError: for another name; the message lists the experiments of the lesson, or all.
    """
    if name in files():
        return name
    lesson = folder_of(name)
    own = [each for each, path in sorted(files().items()) if lesson and LIBRARY / "lessons" / lesson in path.parents]
    if lesson in own or len(own) == 1:
        return lesson if lesson in own else own[0]
    raise ValueError(f"got experiment {name!r}; expected one of {', '.join(own or names())}.")


def _file(name: str) -> Path:
    return files()[called(name)]


def run(name: str, out: Path | None = None, quick: bool = False, resume: bool = True) -> int:
    """Run all steps that are not on disk yet. Return 0 when all are done, 130 when interrupted.

    Args:
        out: the JSON file; None for the experiment's own folder, or build/reproduce/NAME.json for a quick run.
        quick: tiny samples and only the first blocks of the default model, to see that every step works.
        resume: keep finished steps. Without it everything is measured again.
    """
    experiment, console = find(name), Console()
    sizes = experiment.quick if quick else experiment.sizes
    path = Path(out) if out else QUICK_RESULTS / f"{name}.json" if quick else committed(name)
    if path.resolve().is_relative_to(LIBRARY) and not (LIBRARY.parent / "pyproject.toml").is_file():
        raise ValueError(f"got no --out; outside a checkout, name a file for the result: --out {name}.json.")
    _check_writable(path, name)
    partial = path.with_suffix(".partial.json")
    command = f"course reproduce {name}{' --quick' if quick else ''}"
    result = heading(name, command, experiment.seed, asdict(sizes))
    part = experiment.quick_part if quick else None
    if part is not None:
        result["part"] = asdict(part)
    if resume and (earlier := next((p for p in (partial, path) if p.exists()), None)):
        result = continued(json.loads(earlier.read_text(encoding="utf-8")), result, earlier)
    steps = experiment.steps(sizes)
    left = [step for step in steps if step.name not in result["steps"]]
    console.print(f"{experiment.title}: {len(steps)} steps, {len(steps) - len(left)} done already")
    try:
        with part_only(part) if part else nullcontext():
            measure(left, experiment.seed, result, partial, console)
    except KeyboardInterrupt:
        console.print(f"Stopped. Finished steps are in {partial}; the same command continues from there.")
        return 130
    if left or partial.exists():
        done = result["steps"]
        result["steps"] = {step.name: done[step.name] for step in steps} | done  # in their order
        write(result, path)
        partial.unlink(missing_ok=True)
    console.print(f"All steps are in {path}. To measure them again, use `--no-resume`.")
    return 0


def _check_writable(path: Path, name: str) -> None:
    """Check that the result can be written, before hours of measuring."""
    if path.is_dir():
        raise ValueError(f"got --out {path}, a folder; expected a file, such as {path / name}.json.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"got --out {path}, whose folder cannot be made ({why}); choose another file.") from None
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"got --out {path}, in a folder that you may not write to; choose another file.")


def measure(steps: list[Step], seed: int, result: dict[str, Any], path: Path, console: Console) -> None:
    """Run the steps, writing the whole file after each."""
    with bar(console=console) as shown:
        task = shown.add_task("", total=len(steps))
        for step in steps:
            shown.update(task, description=step.name)
            start = time.perf_counter()
            tables = step.run(seed)
            seconds = time.perf_counter() - start
            for table, rows in tables.items():
                result["tables"].setdefault(table, []).extend(rows)
            result["steps"][step.name] = {"seconds": round(seconds, 1), "finished": now()}
            write(result, path)
            console.print(f"  {step.name}: {seconds:.0f} s")
            shown.advance(task)
