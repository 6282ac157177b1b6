"""What the code of a lesson or a deck depends on: the files that it imports, those import, and the data beside them."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
DECKS = Path(__file__).parents[1] / "decks"  # what makes decks makes no output of a notebook
_LESSON = re.compile(r"(?:course_lib\.lessons\.|figure:)(\w+)")
_NO_PYTHON = re.compile(r"^\s*[%!].*$", re.MULTILINE)
_EVERY_EXERCISE = "show_progress("  # lists the exercises of all lessons


def depends(cells: Iterable[str] = (), text: str = "", root: Path = ROOT) -> list[Path]:
    """Files of the project that can change what this code does, in the order of their names.

    Imports are followed, those inside functions too. What is found by its place counts as well: all files of a folder
    that is imported as such, all files of a lesson, and data that lies beside code.

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
    """Files of the project that a piece of Python imports; `from a import b` may mean a.b, else it means a."""
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
    """The file of a module; all files of a folder, in which the importer may look for what it has."""
    path = root.joinpath(*module.split("."))
    return [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else sorted(path.glob("*.py"))


def _data(folder: Path) -> Iterator[Path]:
    """What is no code in a folder, and in folders below it that hold none."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        elif path.is_dir() and path.name != "__pycache__" and not any(path.rglob("*.py")):
            yield from (below for below in path.rglob("*") if below.is_file())
