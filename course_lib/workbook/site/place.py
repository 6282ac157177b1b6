"""The folder for the pages: it contains a complete site of this course, or nothing else."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from course_lib.workbook.build import write

LIST = ".course-site"  # in the folder of the pages: the files that were written
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if hasattr(errno, "EDQUOT") else {errno.ENOSPC, errno.EFBIG}

NO_ROOM = (
    "got a full disk: {error}. Executed lessons are kept, and no page was changed. Make room, "
    "then run this command again."
)


def ours(target: Path) -> None:
    """Check that only an earlier site would be replaced.

    Raises:
        ValueError: for a file, and for a folder with files that are not from an earlier build.
    """
    if target.exists() and not target.is_dir():
        raise ValueError(f"got --out {target}, which is a file; expected a folder for the pages.")
    made = target / LIST
    known = set(made.read_text(encoding="utf-8").splitlines()) if made.is_file() else set()
    if strange := sorted(files(target) - known):
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        raise ValueError(
            f"got --out {target}, which holds files that are not of the site: {', '.join(strange[:3])}{more}; expected "
            "a new or empty folder, or an earlier site. Nothing was written. Move them, or choose another folder."
        )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder during a build. Raise ValueError if another build is running."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):  # released by the system when a run is killed
            yield
    except Timeout:
        raise ValueError(
            f"another `course site` is running in {folder}; expected one at a time. Wait for it, then run the same "
            "command again."
        ) from None


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Make a new folder that replaces the target at the end; after an error the target stays as it is.

    Whenever it is interrupted, the target is complete: either the old or the new one.
    """
    fresh, old = (target.with_name(f".{target.name}.{which}") for which in ("new", "old"))
    _back(old, target)  # after a build that was killed
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        write(fresh / LIST, "\n".join(sorted(files(fresh) | {LIST})) + "\n")
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    finally:
        _back(old, target)
        shutil.rmtree(fresh, ignore_errors=True)


def _back(old: Path, target: Path) -> None:
    """Move the old folder back if the target is missing; otherwise delete it."""
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def has_room(warnings: str) -> None:
    """Raise OSError if Sphinx could not write a page: it only warns and continues."""
    for code in FULL:
        if os.strerror(code) in warnings:
            raise OSError(code, os.strerror(code))


def files(folder: Path) -> set[str]:
    """List the paths of all files below the folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
