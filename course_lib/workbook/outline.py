"""List the exercises and their points, read from the source text: importing the exercises takes seconds."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

LESSONS = Path(__file__).parents[1] / "lessons"


@dataclass(frozen=True)
class Outline:
    """A lesson, such as "04 Wanda", and the points of each of its exercises by id, in their order."""

    lesson: str
    points: dict[str, int]


def outlines(lessons: Path = LESSONS) -> list[Outline]:
    """List the lessons in order; a student's copy may lack some."""
    return sorted(map(_outline, lessons.glob("*/exercises/__init__.py")), key=lambda outline: outline.lesson)


def _outline(listing: Path) -> Outline:
    """Read LESSON = "..." and EXERCISES = (A, B), where each name is imported from the file of its exercise."""
    tree = ast.parse(listing.read_text(encoding="utf-8"))
    values = {_target(node): node.value for node in tree.body if isinstance(node, ast.Assign)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    files = {alias.name: node.module.rpartition(".")[2] for node in imports for alias in node.names}
    exercises = (_exercise(listing.with_name(f"{files[name.id]}.py"), name.id) for name in values["EXERCISES"].elts)
    return Outline(values["LESSON"].value, dict(exercises))


def _target(node: ast.Assign) -> str | None:
    """Return the name that is assigned; None for several names, such as A, B = 1, 2."""
    return getattr(node.targets[0], "id", None)


def _exercise(path: Path, name: str) -> tuple[str, int]:
    """Read (id, points) from NAME = Exercise(id="...", points=..., ...), or from the file of NAME = recorded(...)."""
    assigned = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign))
    (call,) = (node.value for node in assigned if _target(node) == name)
    if call.func.id == "recorded":
        stored = json.loads(_metadata(path.with_suffix(".safetensors"))["exercise"])
        return stored["id"], stored["points"]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    return keywords["id"].value, keywords["points"].value


def _metadata(path: Path) -> dict[str, str]:
    """Return the text in the header of a safetensors file: its length as eight bytes, then JSON."""
    with path.open("rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
