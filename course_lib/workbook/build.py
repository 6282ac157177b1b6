"""`course build`: write the student notebooks from the masters, and never replace a student's work.

It also stores the names of the stubs' parameters, with which `check` and grading show inputs.
"""

import json
import os
import shutil
from pathlib import Path

import nbformat
from rich.console import Console

from course_lib.checking import given
from course_lib.workbook import folders, masters

NAMES = given.NAMES.relative_to(folders.CODE)  # in a checkout


def run(names: list[str] | None = None, *, check: bool = False, force: bool = False, root: Path = masters.ROOT) -> int:
    """Build or check the student notebooks of these lessons. Return the exit code.

    Args:
        check: write nothing; return 1 if a notebook differs from its master.
        force: replace an edited notebook, and keep a copy next to it.
    """
    console = Console()
    chosen = masters.masters(names, root)
    folder = root / "notebooks"
    folder.mkdir(exist_ok=True)
    failed = 0
    for master in chosen:
        path = folder / f"{master.stem}.ipynb"
        text = masters.as_text(masters.for_students(master))
        now = path.read_text(encoding="utf-8") if path.exists() else None
        if now == text:
            console.print(f"{path.name}: up to date", style="dim")
        elif check:
            console.print(f"{path.name}: differs from {master.name}; run `course build`", style="red")
            failed = 1
        elif now is not None and is_changed(now) and not force:
            console.print(
                f"{path.name}: kept, because you wrote in it. To get the new version, rename yours, "
                "or run `course build --force`, which keeps a copy of yours.",
                style="yellow",
            )
            failed = 1
        else:
            if now is not None and is_changed(now):
                console.print(f"{path.name}: your version is kept as {keep(path).name}")
            write(path, text)
            console.print(f"{path.name}: written")
    return failed | _parameters(chosen, root / NAMES, check, console)


def _parameters(chosen: list[Path], path: Path, check: bool, console: Console) -> int:
    """Write or check the argument names in the stubs of these masters; those of other masters stay."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    fresh = {exercise: names for master in chosen for exercise, names in masters.parameters(master).items()}
    if all(stored.get(exercise) == names for exercise, names in fresh.items()):
        return 0
    if check:
        console.print(f"{path.name}: differs from the stubs; run `course build`", style="red")
        return 1
    rows = (f" {json.dumps(exercise)}: {json.dumps(names)}" for exercise, names in sorted({**stored, **fresh}.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, "{\n" + ",\n".join(rows) + "\n}\n")
    console.print(f"{path.name}: written")
    return 0


def is_changed(text: str) -> bool:
    """Check whether a built notebook was edited. Unreadable files count as edited: they may contain work."""
    try:
        notebook = nbformat.reads(text, as_version=4)
        return notebook.metadata["course"]["fingerprint"] != masters.fingerprint(notebook)
    except Exception:
        return True


def keep(path: Path) -> Path:
    """Copy a notebook to the first free name in its folder."""
    number = 1
    while (copy := path.with_name(f"{path.stem}.mine-{number}.ipynb")).exists():
        number += 1
    shutil.copy2(path, copy)
    return copy


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all, with line feeds on every system."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(text, encoding="utf-8", newline="\n")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)  # after an error such as a full disk


def write_masters(folder: Path, root: Path = masters.ROOT) -> list[Path]:
    """Write the masters as notebooks with solutions, for nbval; not for students."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"got {folder}, which is a file; expected a folder to write the masters into.")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for master in masters.masters(None, root):
        paths.append(folder / f"{master.stem}.ipynb")
        write(paths[-1], masters.as_text(masters.with_solutions(master)))
    return paths
