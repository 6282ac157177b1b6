"""Notebooks with what they print, and decks with their figures, made once for each state of their code."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.workbook import masters
from course_lib.workbook.build import write

LESSONS = Path(__file__).parents[2] / "lessons"
DECKS = Path(__file__).parents[1] / "decks"
_USED = re.compile(r"(?:course_lib\.lessons\.|figure:)(\w+)")


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


def drawn(deck: Path, folder: Path, draw: Callable[[Path], str]) -> str:
    """The page of a deck, from `folder` where it was kept for this text and the lesson's files as they are."""
    kept = folder / f"{deck.stem}.{_digest([deck.read_text(encoding='utf-8')], LESSONS, (DECKS,))}.html"
    if not kept.is_file():
        page = draw(deck)
        for old in folder.glob(f"{deck.stem}.*.html"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        write(kept, page)
    return kept.read_text(encoding="utf-8")


def fingerprint(notebook: NotebookNode, lessons: Path = LESSONS) -> str:
    """Of the code cells, and of all files of the lessons that they import."""
    return _digest([cell.source for cell in _code(notebook)], lessons)


def _digest(sources: list[str], lessons: Path, further: Iterable[Path] = ()) -> str:
    digest = hashlib.sha256(json.dumps(sources).encode())
    used = sorted(set(_USED.findall("\n".join(sources))) - {"common"})
    for folder in (*(lessons / name for name in used), *further):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".json", ".css"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
