"""Collect the files of a student's copy: all that the lessons need, without masters, tests, grader and answers."""

import json
import re
import subprocess
from pathlib import Path
from types import ModuleType

from course_lib.checking.recorded import SUFFIX
from course_lib.grading.release import exercises, record, strip
from course_lib.workbook.catalogue import file_of, functions_checked, lessons

_GIVEN = re.compile(
    r"LICENSE|Makefile|README\.md|docs/(claims|glossary|install|models|papers|students)\.md"
    r"|pyproject\.toml|requirements\.lock|setup\.py|(course_lib|kernels)/.*"
)
# The grader except for its reader of notebooks, all exercises with their answers, and the code of the website.
_KEPT_BACK = re.compile(
    r"(course_lib/(grading(?!/(__init__\.py|notebook/.*)$)|lessons/\w+/exercises|workbook/site)|kernels/gpu)/.*"
)
_FUNCTIONS = "course_lib/grading/notebook/functions.json"  # which `course check-notebook` reads
_TEXT = {"", ".py", ".md", ".toml", ".lock", ".css"}


def student_files(chosen: list[Path], root: Path) -> dict[str, bytes]:
    """Return every file of a student's copy, by its path, for the lessons of these masters.

    Raises:
        ValueError: outside a git checkout, and for an exercise that cannot be separated from its answers.
    """
    given = [name for name in tracked(root) if _GIVEN.fullmatch(name) and not _KEPT_BACK.fullmatch(name)]
    files = {name: _for_students(root, name) for name in given}
    for master in chosen:
        for name in (f"notebooks/{master.stem}.ipynb", f"slides/{master.stem}.md"):
            files[name] = (root / name).read_bytes()
    files |= _exercises(chosen, root)
    files[_FUNCTIONS] = _functions(chosen).encode()
    template = (root / "docs" / "student_readme.md").read_text(encoding="utf-8")
    readme = strip.without_rows(strip.student_readme(template, files["README.md"].decode()), set(files))
    return files | {"README.md": readme.encode()}


def _functions(chosen: list[Path]) -> str:
    """Return the function name of each exercise as JSON, since a copy has no masters to read it from."""
    names = (functions_checked(master.read_text(encoding="utf-8")) for master in chosen)
    return json.dumps({exercise: name for lesson in names for exercise, name in lesson.items()}, indent=1) + "\n"


def tracked(root: Path) -> list[str]:
    """List the files of the course in their present state: only files that git tracks."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip()
        raise ValueError(f"git cannot list the files of {root} ({reason}); a release needs a git checkout.") from None
    return sorted(name for name in listed if name and (root / name).exists())


def _for_students(root: Path, name: str) -> bytes:
    content = (root / name).read_bytes()
    return strip.for_students(content.decode(), name).encode() if Path(name).suffix in _TEXT else content


def _exercises(chosen: list[Path], root: Path) -> dict[str, bytes]:
    """Return the exercises of each lesson without answers, and for each exercise the results of its answers."""
    numbers = {master.stem[:2] for master in chosen}
    files = {}
    for module in lessons():
        if module.LESSON[:2] in numbers:
            if not Path(module.__file__).is_relative_to(root):
                where = f"{module.__file__} is not in {root}"
                raise ValueError(f"{where}. Run the `course` command of the checkout that is released.")
            files |= _exercises_of(module, root)
    return files


def _exercises_of(module: ModuleType, root: Path) -> dict[str, bytes]:
    def read(path: Path) -> tuple[str, str]:
        return path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")

    index, listed = read(Path(module.__file__))
    exercises.check_index(listed, index)
    sources = [read(file_of(exercise)) for exercise in module.EXERCISES]
    common = Path(module.__file__).with_name("common.py")
    mistakes = [read(file_of(exercise).with_suffix(".md"))[1] for exercise in module.EXERCISES]
    answers = list(zip((source for _, source in sources), mistakes, strict=True))
    _refuse_shared(answers, read(common)[1] if common.exists() else "", index)
    files, needed = {index: listed.encode()}, set()
    for exercise, (name, source) in zip(module.EXERCISES, sources, strict=True):
        if exercises.exercise_id(source, name) != exercise.id:
            raise ValueError(f"{name}: expected the exercise {exercise.id}, as EXERCISES has it in this place.")
        left = exercises.without_answers(source, name)
        needed |= exercises.from_common(left)
        files[name] = left.encode()
        files[str(Path(name).with_suffix(SUFFIX))] = record.record(exercise)
    if needed:
        name, source = read(common)
        files[name] = exercises.only(source, needed).encode()
    return files


def _refuse_shared(sources: list[tuple[str, str]], common: str, where: str) -> None:
    """Refuse to release a comparison that shares a helper with an answer."""
    if given_away := exercises.shared_with_answers(sources, common):
        names = ", ".join(sorted(given_away))
        raise ValueError(
            f"{where}: {names} would be in a student's copy, since a comparison or a picture needs it, and an answer "
            "or a mistake uses it too. Write the comparison without it."
        )
