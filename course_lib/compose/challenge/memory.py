"""Stored measurements, one small JSON file each: an interrupted run continues, and nothing is measured twice.

A name contains everything on which a number depends: the recipe, its files, the texts, and the library's own code.
Files are written completely or not at all; if a file has other contents than it should, we measure again.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

Row = dict[str, Any]
LIBRARY = Path(__file__).parents[2]
# Of the library, what can change a number of a recipe.
SUBJECTS = ("attention", "compose", "contextual", "kv", "prompts", "pruning", "quantization", "sparsity", "models.py")


@dataclass(frozen=True)
class Memory:
    """Stored rows of plain data in a folder; with None nothing is stored."""

    folder: Path | None = None

    def __post_init__(self) -> None:
        if not (self.folder is None or isinstance(self.folder, Path)):
            raise ValueError(f"got folder {self.folder!r}; expected a pathlib.Path, or None to keep nothing.")

    def once(self, name: str, make: Callable[[], Row]) -> Row:
        """Return the stored row of a name; if there is none, make and store it."""
        if (kept := self.get(name)) is not None:
            return kept
        row = make()
        self.keep(name, row)
        return row

    def get(self, name: str) -> Row | None:
        """Load the row of a name; None if there is none, or its file is damaged."""
        return None if self.folder is None else _load(self._path(name), name)

    def keep(self, name: str, row: Row) -> None:
        if self.folder is not None:
            _write(self._path(name), json.dumps({"name": name, "row": row}, allow_nan=False))

    def _path(self, name: str) -> Path:
        return self.folder / f"{digest(name, library())}.json"


def digest(*parts: str | bytes) -> str:
    """Hash texts and bytes; different ones have different digests."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:32]


@lru_cache
def library() -> str:
    """Hash the sources that can change a measurement."""
    files = [path for name in SUBJECTS for path in _sources(LIBRARY / name)]
    return digest(*(path.read_bytes() for path in sorted(files)))


def _sources(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def _load(path: Path, name: str) -> Row | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored["row"] if stored["name"] == name else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
