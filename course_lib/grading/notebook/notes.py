"""What a student should know of how the answer was found, in sentences.

Standard library only: this runs inside the sandbox.
"""

import ast

from course_lib.grading.notebook.answers import Choice
from course_lib.grading.notebook.bindings import root
from course_lib.grading.notebook.cells import Cell
from course_lib.grading.notebook.slices import Slice

MOST, LONGEST = 12, 300  # notes, and characters of one
_UPDATES = {"append", "extend", "update", "add", "insert", "setdefault", "fill_", "copy_"}


def notes(
    choice: Choice, function: str, part: Slice, left_out: dict[str, set[int]], broken: list[tuple[Cell, str]]
) -> tuple[str, ...]:
    """What is worth saying of one answer.

    Args:
        function: the usual name.
        left_out: names that statements which never run set, and the cells of these.
        broken: cells that do not parse, and why.
    """
    name, where = choice.name, f"cell {choice.item.number}"
    notes = []
    if name.startswith("_checked_"):
        notes.append(f"What check is given in {where} was graded.")
    elif name != function:
        notes.append(f"The function is called {name} here ({where}), not {function}; it was graded.")
    elif choice.tried and not choice.item.stub:
        cells = ", ".join(str(number) for number in sorted({check.number for check in choice.tried}))
        notes.append(f"check was also given something else (cell {cells}); {function}, in {where}, was graded.")
    if choice.others:
        cells = ", ".join(str(number) for number in sorted({other.number for other in choice.others}))
        notes.append(f"{name} is defined more than once (also in cell {cells}); the last one, in {where}, was graded.")
    if isinstance(choice.item.node, ast.AsyncFunctionDef):
        notes.append(f"{name} is an async function: a call gives a coroutine, not a value.")
    own = {bound for item in part.items for bound in item.binds} - {name}
    notes += [
        f"{rebound} is defined again further down; what stood there at the check was taken."
        for rebound in sorted(part.later & own)
    ]
    for skipped in sorted((own | part.missing) & left_out.keys()):
        cells = ", ".join(str(number) for number in sorted(left_out[skipped]))
        notes.append(
            f"{skipped} is also set outside of definitions and assignments (cell {cells}); grading skips that."
        )
    unknown = sorted(part.missing - left_out.keys())
    notes += [f"{missing} is used, but nothing in the notebook defines it." for missing in unknown]
    if unknown and broken:
        notes += [f"{cell.name} does not parse: {why}; what it defines is missing." for cell, why in broken]
    return tuple(note[:LONGEST] for note in notes[:MOST])


def nothing(cells: list[Cell], exercise: str, function: str) -> str:
    """Why there is no answer."""
    if text := [cell.name for cell in cells if cell.claims(exercise) and cell.kind != "code"]:
        return f"the cell of {exercise} ({text[0]}) is not a code cell; make it one again."
    return (
        f'nothing in the notebook answers {exercise}: there is no function {function}, no check("{exercise}", ...) '
        "with another, and no definition in the exercise's own cell."
    )


def touches(node: ast.stmt) -> set[str]:
    """Names that a statement which is not run would bind or change."""
    targets = []
    for inner in ast.walk(node):
        if isinstance(getattr(inner, "ctx", None), ast.Store):
            targets.append(inner)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _UPDATES:
            targets.append(inner.func)
    return {name for target in targets if (name := root(target))}
