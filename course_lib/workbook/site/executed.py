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
from course_lib.workbook.site.depends import DECKS, ROOT, depends

_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


def executed(
    notebook: NotebookNode, stem: str, folder: Path, run: Callable[[NotebookNode], str | None], fresh: bool = False
) -> bool:
    """Give the notebook the outputs of its code, from `folder` where they were kept. Whether it had to be run.

    Outputs are kept under the fingerprint of all code cells and of what they import and read, so that a changed cell
    runs its own notebook and no other, a changed file whatever uses it, and a changed sentence none.

    Args:
        run: executes a notebook in place and returns the error of the cell that failed.
        fresh: run it in any case; what was kept stays until that has gone well.

    Raises:
        ValueError: for a notebook with a cell that fails.
    """
    kept = folder / f"{stem}.{fingerprint(notebook)}.ipynb"
    if fresh := fresh or not kept.is_file():
        if error := run(notebook):
            raise ValueError(
                f"{stem} does not run from top to bottom, so there is no page of it: {_said(error)}\nThe pages are as "
                f"before. `course run {stem} --student` shows the cell; mend its master, then give this command again."
            )
        _keep(kept, masters.as_text(notebook), folder.glob(f"{stem}.*.ipynb"))
    before = _code(nbformat.read(kept, as_version=4))
    for cell, earlier in zip(_code(notebook), before, strict=True):
        cell.outputs, cell.execution_count = earlier.outputs, earlier.execution_count
    return fresh


def drawn(deck: Path, folder: Path, draw: Callable[[Path], str]) -> str:
    """The page of a deck, from `folder` where it was kept for this text and for the code that draws it as it is."""
    text = deck.read_text(encoding="utf-8")
    makers = [path for path in sorted(DECKS.iterdir()) if path.is_file()]
    kept = folder / f"{deck.stem}.{_digest([text], depends(text=text) + makers)}.html"
    if not kept.is_file():
        page = draw(deck)
        _keep(kept, page, folder.glob(f"{deck.stem}.*.html"))
    return kept.read_text(encoding="utf-8")


def fingerprint(notebook: NotebookNode, root: Path = ROOT) -> str:
    """Of the code cells, of all files of the project that they use, and of the pinned packages."""
    cells = [cell.source for cell in _code(notebook)]
    return _digest(cells, depends(cells, root=root) + sorted(root.glob("requirements.lock")))


def _keep(path: Path, text: str, earlier: Iterable[Path]) -> None:
    """Write what is to be kept, and then only remove what was kept of an earlier state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text)
    for old in set(earlier) - {path}:
        old.unlink()


def _said(error: str) -> str:
    """The error's own line: the last one of a cell's, the first one where a kernel died or a cell took too long."""
    lines = [line for line in _TERMINAL.sub("", error).splitlines() if line.strip()]
    return lines[-1 if "Traceback" in error else 0]


def _digest(sources: list[str], files: list[Path]) -> str:
    digest = hashlib.sha256(json.dumps(sources).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
