"""The files of a student's copy: all that the lessons need, without masters, tests, grader, and answers."""

import re
import subprocess
from pathlib import Path

from course_lib.checking.recorded import SUFFIX
from course_lib.grading.release import record, strip
from course_lib.workbook.catalogue import lessons

_GIVEN = re.compile(r"LICENSE|Makefile|README\.md|pyproject\.toml|requirements\.lock|(course_lib|kernels)/.*")
_KEPT_BACK = re.compile(r"course_lib/(grading/.*|(experiments|results)/grading\..*|exercises/[a-z]\w*\.py)")
_TEXT = {"", ".py", ".md", ".toml", ".lock", ".css"}


def student_files(chosen: list[Path], root: Path) -> dict[str, bytes]:
    """Every file of a student's copy, by its path, for the lessons of these masters.

    Raises:
        ValueError: outside a git checkout, and for a file of exercises that cannot be parted from its answers.
    """
    given = [name for name in tracked(root) if _GIVEN.fullmatch(name) and not _KEPT_BACK.fullmatch(name)]
    files = {name: _for_students(root, name) for name in given}
    for master in chosen:
        for name in (f"notebooks/{master.stem}.ipynb", f"slides/{master.stem}.md"):
            files[name] = (root / name).read_bytes()
    files |= _exercises(chosen, root)
    readme = strip.without_rows(files["README.md"].decode(), set(files))
    return files | {"README.md": readme.encode()}


def tracked(root: Path) -> list[str]:
    """What belongs to the course, and nothing that lies about: the files that git knows, as they are now."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        raise ValueError(f"git cannot list the files of {root} ({said}); a release needs a git checkout.") from None
    return sorted(name for name in listed if name and (root / name).exists())


def _for_students(root: Path, name: str) -> bytes:
    content = (root / name).read_bytes()
    return strip.for_students(content.decode(), name).encode() if Path(name).suffix in _TEXT else content


def _exercises(chosen: list[Path], root: Path) -> dict[str, bytes]:
    """For each lesson its exercises without answers, and beside them what the answers give."""
    files = {}
    for module in lessons():
        if module.LESSON[:2] not in {master.stem[:2] for master in chosen}:
            continue
        path = Path(module.__file__)
        if not path.is_relative_to(root):
            raise ValueError(f"{path} is not in {root}. Run the `course` command of the checkout that is released.")
        name, source = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        if sorted(strip.exercise_ids(source, name)) != sorted(exercise.id for exercise in module.EXERCISES):
            raise ValueError(f"{name}: expected each of EXERCISES as NAME = Exercise(...) at the top of the file.")
        files[name] = strip.without_answers(source, name).encode()
        files[str(Path(name).with_suffix(SUFFIX))] = record.record(module)
    return files
