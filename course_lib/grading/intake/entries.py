"""List the files of a folder of submissions, on disk and in zips, as paths. No file is read.

Links are not followed. Zips are listed like folders, and so are zips inside of these.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from course_lib.grading.intake import zips
from course_lib.grading.intake.submission import NOTEBOOK_BYTES

DEEPEST = 12  # levels of nested folders
MOST_FILES = 100_000
LARGEST_INNER_SUM = 2**31  # bytes of all zips inside of one zip
IGNORED = re.compile(r"\..*|__MACOSX|__pycache__|Thumbs\.db|desktop\.ini", re.IGNORECASE)
NOTEBOOK = re.compile(r".*\.ipynb(\.txt|\.json)?", re.IGNORECASE | re.DOTALL)  # browsers and editors add a suffix
ARCHIVE = re.compile(r".*\.(rar|7z|tar|tgz|gz|xz|bz2)", re.IGNORECASE | re.DOTALL)

Kind = Literal["folder", "notebook", "zip", "other"]


@dataclass(frozen=True)
class Entry:
    """One file or folder.

    Args:
        kind: the files to grade are called notebooks, even if they are recipes.
        parts: its path below the folder of submissions; members of a zip are below the zip.
        path, outer, member: how to read it, as in Submission.
        stamp: time of saving, in seconds.
        problem: why it cannot be graded.
    """

    parts: tuple[str, ...]
    kind: Kind
    path: Path
    outer: str = ""
    member: str = ""
    stamp: float = 0.0
    problem: str = ""

    @property
    def where(self) -> str:
        return "/".join(self.parts)


def walk(folder: Path) -> list[Entry]:
    """Return all files below a folder, or in a zip, sorted by name.

    Raises:
        ValueError: if there is no such folder, or it contains far more files than any class submits.
    """
    if folder.is_dir():
        return _limited(_folder(folder.resolve(), (), DEEPEST), folder)
    if folder.suffix.lower() == ".zip":
        return _limited(_zip(Entry((), "zip", folder.resolve())), folder)
    if NOTEBOOK.fullmatch(folder.name) and folder.is_file():
        return [_file(folder.resolve(), (folder.name,), folder.stat())]
    raise ValueError(f"got {folder}; expected a folder of submissions, a zip, or a notebook.")


def _limited(incoming: Iterator[Entry], folder: Path) -> list[Entry]:
    entries = []
    for entry in incoming:
        entries.append(entry)
        if len(entries) > MOST_FILES:
            raise ValueError(f"got more than {MOST_FILES} files in {folder}; expected the submissions of one class.")
    return entries


def _folder(folder: Path, parts: tuple[str, ...], depth: int) -> Iterator[Entry]:
    """Yield the folder's entries. A folder that looks like a notebook, is unreadable, or is too deep, has a problem."""
    try:
        children = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Entry(parts, "folder", folder, problem=f"the folder cannot be read ({error.strerror}).")
        return
    for child in children:
        if not IGNORED.fullmatch(child.name):
            yield from _entry(Path(child.path), (*parts, child.name), depth)


def _entry(path: Path, parts: tuple[str, ...], depth: int) -> Iterator[Entry]:
    try:
        status = path.lstat()
    except OSError as error:
        yield Entry(parts, "other", path, problem=f"it cannot be read ({error.strerror}).")
        return
    if stat.S_ISDIR(status.st_mode):
        odd = "it is a folder that is named as a notebook." if NOTEBOOK.fullmatch(path.name) else ""
        odd = odd if depth else f"it lies more than {DEEPEST} folders deep."
        yield Entry(parts, "folder", path, problem=odd)
        if depth:
            yield from _folder(path, parts, depth - 1)
    elif path.suffix.lower() == ".zip" and stat.S_ISREG(status.st_mode):
        yield from _zip(Entry(parts, "zip", path, stamp=status.st_mtime))
    else:
        yield _file(path, parts, status)


def _file(path: Path, parts: tuple[str, ...], status: os.stat_result) -> Entry:
    kind = _kind(path.name)
    problem = ""
    if stat.S_ISLNK(status.st_mode):
        kind = "folder" if path.is_dir() else kind
        problem = zips.LINK
    elif not stat.S_ISREG(status.st_mode):
        problem = "it is no ordinary file."
    elif kind == "notebook":
        problem = str(zips.too_large(NOTEBOOK_BYTES)) if status.st_size > NOTEBOOK_BYTES else zips.why_not(path)
    return Entry(parts, kind, path, stamp=status.st_mtime, problem=problem)


def _kind(name: str) -> Kind:
    if NOTEBOOK.fullmatch(name):
        return "notebook"
    return "zip" if name.lower().endswith(".zip") else "other"


def _zip(entry: Entry) -> Iterator[Entry]:
    """Yield a zip and its members."""
    try:
        members = zips.members(entry.path, entry.outer)
    except ValueError as error:
        yield replace(entry, problem=str(error))
        return
    yield entry
    left = LARGEST_INNER_SUM
    for member in members:
        names = tuple(name for name in member.shown.split("/") if name not in ("", "."))
        if not names or any(IGNORED.fullmatch(name) and name != ".." for name in names):
            continue
        kind, problem = _kind(names[-1]), member.problem
        if kind == "notebook" and member.size > NOTEBOOK_BYTES:
            problem = problem or str(zips.too_large(NOTEBOOK_BYTES))
        inner_entry = Entry((*entry.parts, *names), kind, entry.path, entry.outer, member.name, member.stamp, problem)
        if kind == "zip" and not problem:
            left -= member.size
            yield from _inner(inner_entry, left)
        else:
            yield inner_entry


def _inner(entry: Entry, left: int) -> Iterator[Entry]:
    """Return a zip in a zip. To list it we unpack it into memory, so the total size is limited."""
    if entry.outer:
        yield replace(entry, problem="it is a zip in a zip in a zip; pack the notebook itself.")
    elif left < 0:
        yield replace(entry, problem=f"the zips in the zip have more than {LARGEST_INNER_SUM >> 30} GiB together.")
    else:
        yield from _zip(replace(entry, outer=entry.member, member=""))
