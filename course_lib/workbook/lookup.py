"""Find a lesson by name: its number ("4", "04"), slug ("wanda"), both ("04_wanda"), or folder in lessons."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from course_lib.workbook.folders import PACKAGED

LESSONS = Path(__file__).parents[1] / "lessons"


@lru_cache(maxsize=1)
def folders() -> dict[str, str]:
    """Map the number of each lesson to its folder in lessons/, {"04": "wanda"}; a student's copy may lack some."""
    texts = {path.parents[1].name: path.read_text(encoding="utf-8") for path in LESSONS.glob("*/exercises/__init__.py")}
    return {re.search(r'^LESSON = "(\d\d)', text, re.MULTILINE)[1]: folder for folder, text in texts.items()}


def chosen(names: Sequence[str] | None, files: list[Path]) -> list[Path]:
    """Choose the files NN_slug.* of these lessons; all of them for None.

    Raises:
        ValueError: for a name that no lesson has; the message lists those that exist.
    """
    if not names:
        return files
    if not files:
        raise ValueError(
            f"got {', '.join(names)}, but there are no lessons here; go to the folder of `course start FOLDER`."
        )
    matching = {}
    for name in names:
        match = [path for path in files if means(name, path.stem)]
        if not match:
            raise ValueError(f"got lesson {name!r}; expected one of {', '.join(p.stem for p in files)}, or its number.")
        matching[match[0]] = None
    return list(matching)


def means(name: str, stem: str) -> bool:
    """Check whether a name means the lesson with the files NN_slug."""
    number, slug = stem[:2], stem[3:]
    return bool(name) and (name in (stem, slug, folders().get(number)) or name.zfill(2) == number)


def folder_of(name: str) -> str | None:
    """Find the folder in lessons/ of the lesson that a name means; None if it means none."""
    stems = (path.stem for path in sorted(PACKAGED.glob("[0-9][0-9]_*.ipynb")))
    return next((folders().get(stem[:2]) for stem in stems if means(name, stem)), None)
