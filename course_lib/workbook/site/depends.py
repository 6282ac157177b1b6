"""The dependencies of a lesson or a deck: imported files, the files that those import, and data in their folders."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
DECKS = Path(__file__).parents[1] / "decks"  # this code makes decks, and no output of a notebook
_LESSON = re.compile(r"(?:course_lib\.lessons\.|figure:)(\w+)")
_NO_PYTHON = re.compile(r"^\s*[%!].*$", re.MULTILINE)
_EVERY_EXERCISE = "show_progress("  # lists the exercises of all lessons


def depends(cells: Iterable[str] = (), text: str = "", root: Path = ROOT) -> list[Path]:
    """Return the files of the project that can change what this code does, sorted by name.

    We follow imports, also those inside functions. Files that code may find by their folder count as well: all files of
    an imported folder, all files of a lesson, and data in the same folder as code.

    Args:
        cells: code of a notebook.
        text: of a deck, which names functions of lessons.
    """
    waiting = [path for cell in cells for path in _imported(cell, root)]
    for name in set(_LESSON.findall("\n".join([*cells, text]))) - {"common"}:
        waiting += (root / "course_lib" / "lessons" / name).rglob("*.py")
    if any(_EVERY_EXERCISE in cell for cell in cells):
        waiting += (root / "course_lib" / "lessons").glob("*/exercises/*.py")
    found: set[Path] = set()
    while waiting:
        if (path := waiting.pop()) not in found and path.parent != DECKS:
            found.add(path)
            waiting += _imported(path.read_text(encoding="utf-8"), root)
    return sorted(found | {data for folder in {path.parent for path in found} for data in _data(folder)})


def _imported(source: str, root: Path) -> Iterator[Path]:
    """Return the files of the project that Python code imports; `from a import b` means a.b if this exists, else a."""
    for name in _names(source):
        package = name.rpartition(".")[0]
        yield from _files(name, root) or (_files(package, root) if package else [])


@cache  # lessons share most of what they import
def _names(source: str) -> tuple[str, ...]:
    names = []
    for node in ast.walk(ast.parse(_NO_PYTHON.sub("", source))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def _files(module: str, root: Path) -> list[Path]:
    """List the file of a module, or all files of a folder, which the importer may search."""
    path = root.joinpath(*module.split("."))
    return [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else sorted(path.glob("*.py"))


def _data(folder: Path) -> Iterator[Path]:
    """List the files of a folder that are not code, and those in subfolders without code."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        elif path.is_dir() and path.name != "__pycache__" and not any(path.rglob("*.py")):
            yield from (below for below in path.rglob("*") if below.is_file())
