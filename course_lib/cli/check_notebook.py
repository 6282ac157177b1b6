"""`course check-notebook`: what grading makes of a notebook, before it is handed in.

The same reader takes the notebook apart and the same statements are run, one process an exercise, on the cases of
`check`. The walls of the sandbox are not there: it is the student's own code on the student's own machine.
"""

import importlib.abc
import json
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import nbformat
import numpy
import torch
from rich.console import Console

from course_lib.checking.call import LIMIT, DidNotFinish, limited
from course_lib.checking.exercise import Exercise
from course_lib.checking.given import given
from course_lib.checking.judge import Verdict, counted, judge
from course_lib.grading.notebook import execution
from course_lib.grading.notebook.program import Notebook, load
from course_lib.workbook import catalogue, folders, masters
from course_lib.workbook.checks import SEED

SECONDS = 60.0  # per exercise, as in grading
GIVEN_UP = 660.0  # seconds, however busy the machine is
NAMES = Path(execution.__file__).with_name("functions.json")  # in a student's copy, which has no masters


@dataclass(frozen=True)
class Row:
    """The result of one exercise: "right", "wrong", "not attempted", "not found" or "failed", and why."""

    exercise: str
    state: str
    reason: str = ""
    notes: tuple[str, ...] = ()


def run(path: Path, console: Console) -> int:
    """Print how a notebook would be graded. Return 0 when every exercise is right.

    Raises:
        ValueError: for a file that is not a notebook of the course.
    """
    rows = []
    for row in checked(path):  # printed as soon as it is known: an exercise may take a minute
        rows.append(row)
        colour = {"right": "green", "not attempted": "dim"}.get(row.state, "red")
        console.print(f"[{colour}]{row.state:<13}[/] {row.exercise}")
        for text in (*filter(None, [row.reason]), *row.notes):
            console.print(f"              {text}", markup=False, soft_wrap=True)
    n_right = sum(row.state == "right" for row in rows)
    lines = [f"{n_right} of {len(rows)} are right as they would be graded, on the cases of `check`."]
    if n_right < len(rows):
        lines.append("If `check` says right in the notebook and this does not, the lines under the exercise say why.")
    lines.append("Grading tries more cases, in a sandbox without network, model or your files.")
    console.print("\n".join(lines), soft_wrap=True)
    return int(n_right < len(rows))


def check(path: Path) -> list[Row]:
    """Check each exercise of the lesson that a notebook belongs to; `checked` returns them one by one."""
    return list(checked(path))


def checked(path: Path) -> Iterator[Row]:
    """Check one exercise after the other of the lesson that a notebook belongs to.

    Raises:
        ValueError: for a file that is not a notebook of the course.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"got {path}, which cannot be read ({error.strerror}); expected a notebook.") from None
    try:
        notebook = load(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    names = usual_names()
    for exercise in exercises_of(notebook, path):
        yield _row(content, exercise, names)


def usual_names(root: Path = masters.ROOT) -> dict[str, str]:
    """Look up the usual name of each exercise's function: in the file of a release, the masters, or the notebooks."""
    if NAMES.exists():
        return json.loads(NAMES.read_text(encoding="utf-8"))
    if (root / "solutions").is_dir():
        texts = [path.read_text(encoding="utf-8") for path in masters.masters(None, root)]
    else:
        came = [nbformat.read(path, as_version=4) for path in sorted(folders.PACKAGED.glob("[0-9][0-9]_*.ipynb"))]
        texts = [cell.source for notebook in came for cell in notebook.cells]
    return {exercise: name for text in texts for exercise, name in catalogue.functions_checked(text).items()}


def exercises_of(notebook: Notebook, path: Path) -> tuple[Exercise, ...]:
    """Return the exercises of the lesson from which the notebook has the most."""
    claimed = [str(cell.metadata.get("exercise")) for cell in notebook.cells] + [c.exercise for c in notebook.checks]
    known = {module: {exercise.id for exercise in module.EXERCISES} for module in catalogue.lessons()}
    found = max(known, key=lambda module: sum(name in known[module] for name in claimed))
    if not known[found].intersection(claimed):
        raise ValueError(f"got {path}, which contains no exercise of the course; expected a lesson's notebook.")
    return found.EXERCISES


def _row(content: bytes, exercise: Exercise, names: dict[str, str]) -> Row:
    """Run one exercise in a process of its own, so that its changes do not reach the next one."""
    how = "fork" if "fork" in multiprocessing.get_all_start_methods() and sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(how)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(content, exercise.id, names.get(exercise.id, ""), theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(GIVEN_UP):
            return Row(exercise.id, *ours.recv())
        return Row(exercise.id, "failed", f"It was stopped after {GIVEN_UP:g} seconds: does every loop end?")
    except EOFError:
        return Row(exercise.id, "failed", "It ended its process before every case was run.")
    finally:
        process.kill()
        process.join()


def _work(content: bytes, name: str, function: str, pipe: Connection) -> None:
    """Do the work of the process of one exercise."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with limited(SECONDS):
                answer = _verdict(content, catalogue.find(name), function)
        except DidNotFinish:
            answer = "failed", f"It was stopped after {SECONDS:g} seconds: does every loop end?", ()
        except LookupError as error:
            answer = "not found", str(error.args[0]), ()
        except BaseException as error:  # such as a cell that is not Python
            words = str(error) if isinstance(error, ValueError) else execution.said(error)
            answer = "failed", words, ()
        pipe.send(answer)
        os.chdir(os.path.dirname(folder))


def _verdict(content: bytes, exercise: Exercise, function: str) -> tuple[str, str, tuple[str, ...]]:
    program = load(content).program(exercise.id, function)
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0), torch.set_num_threads(1)
    _forget_the_lessons()
    answer, notes = execution.load(program, LIMIT)
    notes = (*program.notes, *notes)
    if not callable(answer):
        return "failed", f"{program.function} could not be loaded.", notes
    verdict = judge(exercise, answer, SEED)
    return verdict.state, _why(verdict), notes


def _why(verdict: Verdict) -> str:
    if verdict.state != "wrong":
        return ""
    where = _first_wrong(verdict) if verdict.case else "not every case was run"
    mistake = f" This looks like: {verdict.mistake.name}." if verdict.mistake else ""
    numbers = f"{verdict.n_right} of {verdict.n_cases} cases {'is' if verdict.n_right == 1 else 'are'} right."
    return f"{counted(verdict.n_right, verdict.n_cases, verdict.lowered) or numbers} {where}.{mistake}"


def _first_wrong(verdict: Verdict) -> str:
    """Describe the first wrong case, with its input if that is small, as `check` does."""
    arguments = given(verdict.exercise, verdict.case, verdict.names)
    return f"{verdict.case.name}{f', given {arguments}' if arguments else ''}: {verdict.difference}"


class _NotThere(importlib.abc.MetaPathFinder):
    """Lessons cannot be imported where answers are graded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("course_lib.lessons"):
            raise ModuleNotFoundError(f"No module named {name!r} where answers are graded")


def _forget_the_lessons() -> None:
    for name in [name for name in sys.modules if name.startswith("course_lib.lessons")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _NotThere())
