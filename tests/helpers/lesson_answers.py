"""Answers that people gave, by exercise: tests/lessons/LESSON/LESSON_answers.py holds those of a lesson.

RIGHT and WRONG are {exercise: {what it does: function}}. The value of a wrong one may also be (function, name of the
mistake), where only that name, or none for "", is true.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

LESSONS = Path(__file__).parents[1] / "lessons"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = [load(path) for path in sorted(LESSONS.glob("*/*_answers.py"))]


def right_answers(exercise: str) -> list[tuple[str, Callable]]:
    return [(what, function) for module in MODULES for what, function in module.RIGHT.get(exercise, {}).items()]


def wrong_answers(exercise: str) -> list[tuple[str, Callable, str | None]]:
    """Each with the only name that is true, where that is known."""
    found = [each for module in MODULES for each in module.WRONG.get(exercise, {}).items()]
    return [(what, *(given if isinstance(given, tuple) else (given, None))) for what, given in found]
