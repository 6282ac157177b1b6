"""Notebooks with outputs, and decks with figures, made once for each state of their code."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.workbook import masters
from course_lib.workbook.build import write
from course_lib.workbook.site.depends import DECKS, ROOT, depends

_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


def executed(
    notebook: NotebookNode, stem: str, folder: Path, run: Callable[[NotebookNode], str | None], fresh: bool = False
) -> bool:
    """Fill in the outputs of a notebook, from `folder` if they are stored there. Return whether it had to be run.

    Outputs are stored under a fingerprint of all code cells and of the files that they import and read. So a changed
    cell runs only its own notebook, a changed file the notebooks that use it, and a changed sentence none.

    Args:
        run: executes a notebook in place and returns the error of the cell that failed.
        fresh: run it in any case; stored outputs stay until this succeeds.

    Raises:
        ValueError: for a notebook with a cell that fails.
    """
    kept = folder / f"{stem}.{fingerprint(notebook)}.ipynb"
    if fresh := fresh or not kept.is_file():
        if error := run(notebook):
            raise ValueError(
                f"{stem} does not run from top to bottom, so it has no page: {_said(error)}\nThe pages are "
                f"unchanged. `course run {stem} --student` shows the cell. Correct its master, then try again."
            )
        _keep(kept, masters.as_text(notebook), folder.glob(f"{stem}.*.ipynb"))
    before = _code(nbformat.read(kept, as_version=4))
    for cell, earlier in zip(_code(notebook), before, strict=True):
        cell.outputs, cell.execution_count = earlier.outputs, earlier.execution_count
    return fresh


def drawn(deck: Path, folder: Path, draw: Callable[[Path], str]) -> str:
    """Make the page of a deck, or take it from `folder` if its text and the code that draws it are unchanged."""
    text = deck.read_text(encoding="utf-8")
    makers = [path for path in sorted(DECKS.iterdir()) if path.is_file()]
    kept = folder / f"{deck.stem}.{_digest([text], depends(text=text) + makers)}.html"
    if not kept.is_file():
        page = draw(deck)
        _keep(kept, page, folder.glob(f"{deck.stem}.*.html"))
    return kept.read_text(encoding="utf-8")


def fingerprint(notebook: NotebookNode, root: Path = ROOT) -> str:
    """Make a fingerprint of the code cells, of all project files that they use, and of the pinned packages."""
    cells = [cell.source for cell in _code(notebook)]
    return _digest(cells, depends(cells, root=root) + sorted(root.glob("requirements.lock")))


def _keep(path: Path, text: str, earlier: Iterable[Path]) -> None:
    """Store a file, and then remove those of earlier states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text)
    for old in set(earlier) - {path}:
        old.unlink()


def _said(error: str) -> str:
    """Find the line of the error: the last one for a cell, the first one if a kernel died or a cell took too long."""
    lines = [line for line in _TERMINAL.sub("", error).splitlines() if line.strip()]
    return lines[-1 if "Traceback" in error else 0]


def _digest(sources: list[str], files: list[Path]) -> str:
    digest = hashlib.sha256(json.dumps(sources).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
