"""Check whether the pages are unchanged and match the current sources; if so, there is nothing to build."""

import hashlib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from course_lib.workbook.build import write
from course_lib.workbook.site.place import LIST, files

STAMP = ".course-site-made"  # in the folder of the pages


def inputs(paths: Iterable[Path]) -> str:
    """Make a digest of these files and folders, and of all installed packages with their versions."""
    digest = hashlib.sha256("\n".join(sorted(f"{each.name} {each.version}" for each in distributions())).encode())
    for path in paths:
        _add(digest, path)
    return digest.hexdigest()


def stamp(target: Path, made_of: str) -> None:
    """Store digests of the sources and of the pages in the folder of the pages."""
    write(target / STAMP, _said(target, made_of))


def as_made(target: Path, made_of: str) -> bool:
    """Check whether the pages were made from these sources, and none is missing, altered or new."""
    made = target / STAMP
    return made.is_file() and made.read_text(encoding="utf-8") == _said(target, made_of)


def _said(target: Path, made_of: str) -> str:
    digest = hashlib.sha256()
    _add(digest, target)
    return f"{made_of}\n{digest.hexdigest()}\n"


def _add(digest: "hashlib._Hash", path: Path) -> None:
    """Add the content of a file, or of all files of a folder with their names, except compiled Python files."""
    for name in sorted(files(path)) if path.is_dir() else [path.name]:
        if name not in (STAMP, LIST) and not name.endswith(".pyc"):
            content = (path / name if path.is_dir() else path).read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
