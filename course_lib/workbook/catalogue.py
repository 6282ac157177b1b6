"""The exercises of the course: all of them, lesson by lesson, and each by its id."""

import difflib
import importlib
import re
from pathlib import Path
from types import ModuleType

from course_lib import lessons as house
from course_lib.checking.exercise import Exercise

_CHECK = re.compile(r'^check\(\s*"([^"]+)",\s*(\w+)', re.MULTILINE)


def lessons() -> list[ModuleType]:
    """Import the modules lessons/LESSON/exercises, in the order of the lessons; a student's copy may lack some."""
    names = {path.parents[1].name for root in house.__path__ for path in Path(root).glob("*/exercises/__init__.py")}
    return sorted(map(exercises_of, names), key=lambda module: module.LESSON)


def exercises_of(lesson: str) -> ModuleType:
    """Import the module with the exercises of one lesson, such as "wanda", but not those of other lessons.

    Raises:
        ModuleNotFoundError: the lesson does not exist here.
    """
    return importlib.import_module(f"{house.__name__}.{lesson}.exercises")


def file_of(exercise: Exercise) -> Path:
    """Find the file of an exercise: kv.slots is in lessons/kv/exercises/slots.py."""
    lesson, name = exercise.id.split(".")
    return Path(exercises_of(lesson).__file__).with_name(f"{name}.py")


def all_exercises() -> list[Exercise]:
    """Return all exercises of the course, in order."""
    return [exercise for module in lessons() for exercise in module.EXERCISES]


def find(exercise_id: object) -> Exercise:
    """Return the exercise with this id.

    Raises:
        ValueError: there is none; the message names the most similar ids.
    """
    try:
        module = exercises_of(str(exercise_id).split(".")[0])
        return next(e for e in module.EXERCISES if e.id == exercise_id)
    except (ModuleNotFoundError, StopIteration, ValueError):
        ids = [exercise.id for exercise in all_exercises()]
        near = difflib.get_close_matches(str(exercise_id), ids, n=3, cutoff=0.4)
        advice = f"did you mean {' or '.join(near)}?" if near else f"expected a lesson and a name, such as {ids[0]!r}."
        raise ValueError(
            f"got exercise {exercise_id!r}, which does not exist; {advice} Its check contains the name."
        ) from None


def functions_checked(source: str) -> dict[str, str]:
    """Find the function that each `check` of a master or a cell receives: {"wanda.score": "wanda_score"}."""
    return dict(_CHECK.findall(source))
