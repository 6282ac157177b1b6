"""`course start`: copy the lessons into a folder, for a course that was installed as a package."""

from pathlib import Path

import nbformat
from rich.console import Console

from course_lib.cli import lab
from course_lib.workbook import folders
from course_lib.workbook.build import is_changed, write

NEW, RENEWED, THERE = "new", "replaced by a newer version", "up to date"
YOURS = "kept, because you wrote in it; rename it to get the newer version"


def run(folder: Path, port: int | None = None, browser: bool = True, serve: bool = True) -> int:
    """Copy the lessons into a folder; with `serve`, set up and open the first one. Return the exit code.

    Raises:
        ValueError: if the folder cannot be made.
    """
    console = Console()
    for name, what in lay_out(folder).items():
        if what != THERE:
            console.print(f"{name}: {what}", highlight=False)
    console.print(f"The lessons are in {folder / 'notebooks'}.", soft_wrap=True, highlight=False)
    return lab.run(port, browser, prepare=True, root=folder) if serve else 0


def lay_out(folder: Path, packaged: Path = folders.PACKAGED) -> dict[str, str]:
    """Copy each lesson that is missing, and report each one. A notebook in which the student wrote stays as it is.

    Raises:
        ValueError: before anything is written, if the folder cannot be made, or something else is in the way; and for a
            course without notebooks.
    """
    lessons = [path for path in sorted(packaged.glob("[0-9][0-9]_*.ipynb")) if ".mine-" not in path.name]
    if not lessons:
        raise ValueError(
            f"got no notebooks in {packaged}; install the course again, or, in a checkout, run `course build`."
        )
    try:
        (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        notebooks = folder / "notebooks"
        file = next((path for path in (notebooks, *notebooks.parents) if path.is_file()), folder)
        raise ValueError(f"got {folder}, where the file {file} is in the way; name another folder.") from None
    except OSError as error:
        raise ValueError(
            f"got {folder}, which cannot be made ({error.strerror}); expected a folder that you may write to."
        ) from None
    targets = {path: folder / "notebooks" / path.name for path in lessons}
    if other := next((target for target in targets.values() if target.is_dir()), None):
        raise ValueError(f"got {folder}, where the folder {other} is in the way of a notebook; rename it.")
    return {path.name: _copy(path, target) for path, target in targets.items()}


def _copy(source: Path, target: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if not target.exists():
        write(target, text)
        return NEW
    now = target.read_text(encoding="utf-8", errors="replace")
    if _course(now) == _course(text):
        return THERE
    if is_changed(now):
        return YOURS
    write(target, text)
    return RENEWED


def _course(text: str) -> object:
    """Read the note that the build left in a notebook; running the notebook or writing in it does not change it."""
    try:
        return nbformat.reads(text, as_version=4).metadata.get("course")
    except Exception:  # an unreadable file may hold work; is_changed reports it as changed
        return None
