"""`course release`: make the files for students, nbgrader and Gradescope from a checkout of the course."""

from pathlib import Path

from rich.console import Console

from course_lib.grading.release import leaks
from course_lib.grading.release.student_files import student_files
from course_lib.grading.release.zip import write_zip
from course_lib.workbook import build, masters

FOLDER = "sparsity-workbook"  # the top folder in the zip
FIRST = "00"  # explains how to work, and is where `course lab` opens


def run(
    out: Path | None,
    nbgrader: Path | None,
    gradescope: Path | None,
    names: list[str] | None,
    console: Console,
    root: Path = masters.ROOT,
) -> int:
    """Make the requested files. Return the exit code.

    Raises:
        ValueError: if nothing was requested, or it cannot be made.
    """
    if not (out or nbgrader or gradescope):
        raise ValueError("got nothing to make; expected --out student.zip, --nbgrader FOLDER or --gradescope FILE.zip.")
    if out:
        student_zip(out, names, console, root)
    if nbgrader:
        from course_lib.grading.release import nbgrader as nbgrader_tree

        nbgrader_tree.write(nbgrader, choose(names, root), console)
    if gradescope:
        from course_lib.grading.release import gradescope as autograder

        autograder.write(gradescope, choose(names, root), console, root)
    return 0


def student_zip(out: Path, names: list[str] | None, console: Console, root: Path = masters.ROOT) -> None:
    """Write what students need to a zip.

    Args:
        names: the lessons to release, in addition to lesson 00; None for all of them.

    Raises:
        ValueError: outside a checkout, if a notebook is not up to date with its master, and if a solution would leak.
    """
    chosen = choose(names and [FIRST, *names], root)
    files = student_files(chosen, root)
    leaked = [leak for leak in leaks.leaks(files, masters.masters(None, root)) if leak.line not in leaks.ALLOWED]
    if leaked:
        raise ValueError(
            f"{leaked[0].file} contains {leaked[0].line!r}, a line of a solution ({len(leaked)} in all). Write one of "
            "the two differently; where it must be in both, give the reason in course_lib/grading/release/leaks.py."
        )
    write_zip(out, {f"{FOLDER}/{name}": content for name, content in files.items()})
    size = out.stat().st_size / 1e6
    console.print(f"{out}: {len(chosen)} lessons, {len(files)} files, {size:.1f} MB", soft_wrap=True)
    console.print("Students unpack it and type `make lab` in it.")


def choose(names: list[str] | None, root: Path) -> list[Path]:
    """Return the masters of the lessons to release, each with an up-to-date notebook."""
    if not (root / "solutions").is_dir():
        raise ValueError(f"{root} has no masters in solutions/. A release is made from a checkout of the whole course.")
    chosen = sorted(masters.masters(names, root))
    if build.run([master.stem for master in chosen], check=True, root=root):
        raise ValueError("a notebook is not what its master gives (see above). Run `course build`, then release again.")
    return chosen
