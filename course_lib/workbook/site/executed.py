"""Notebooks with what they print, executed once for each state of their code: a second build takes seconds."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.workbook import masters
from course_lib.workbook.build import write

LESSONS = Path(__file__).parents[2] / "lessons"
_USED = re.compile(r"course_lib\.lessons\.(\w+)")


def executed(notebook: NotebookNode, stem: str, folder: Path, run: Callable[[NotebookNode], str | None]) -> bool:
    """Give the notebook the outputs of its code, from `folder` where they were kept. Whether it had to be run.

    Outputs are kept under the fingerprint of all code cells and of the lesson's own files, so that a changed cell runs
    its own notebook and no other, and a changed sentence runs none.

    Args:
        run: executes a notebook in place and returns the error of the cell that failed.

    Raises:
        ValueError: for a notebook with a cell that fails.
    """
    kept = folder / f"{stem}.{fingerprint(notebook)}.ipynb"
    if fresh := not kept.is_file():
        if error := run(notebook):
            raise ValueError(f"{stem} does not run from top to bottom, so there is no page of it:\n{error}")
        for old in folder.glob(f"{stem}.*.ipynb"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        write(kept, masters.as_text(notebook))
    before = _code(nbformat.read(kept, as_version=4))
    for cell, earlier in zip(_code(notebook), before, strict=True):
        cell.outputs, cell.execution_count = earlier.outputs, earlier.execution_count
    return fresh


def fingerprint(notebook: NotebookNode, lessons: Path = LESSONS) -> str:
    """Of the code cells, and of all files of the lessons that they import."""
    sources = [cell.source for cell in _code(notebook)]
    digest = hashlib.sha256(json.dumps(sources).encode())
    for name in sorted(set(_USED.findall("\n".join(sources))) - {"common"}):
        for path in sorted((lessons / name).rglob("*")):
            if path.suffix in (".py", ".json"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
