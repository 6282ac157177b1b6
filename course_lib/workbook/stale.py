"""Cells that used the course's function instead of the student's, and are out of date when the student's is right."""

import uuid
from dataclasses import dataclass

from course_lib.workbook import session, show


@dataclass(frozen=True)
class _Cell:
    """The number before a cell, and the output that shows which function it used."""

    number: int
    display_id: str


_cells: dict[str, dict[str, _Cell]] = {}  # by exercise, then by the identity of the cell


def used_the_courses(exercise_id: str, text: str) -> None:
    """Note in the running cell that it uses the course's function, and remember the cell."""
    if not session.in_notebook():
        show.message(text)
        return
    cell = _Cell(session.cell_number(), uuid.uuid4().hex)
    _cells.setdefault(exercise_id, {})[session.cell_id()] = cell
    show.message(text, display_id=cell.display_id)


def uses_the_students(exercise_id: str) -> None:
    """Forget that the running cell used the course's function in an earlier run."""
    if session.in_notebook():
        _cells.get(exercise_id, {}).pop(session.cell_id(), None)


def mark(exercise_id: str, title: str) -> tuple[int, ...]:
    """Mark the cells that used the course's function as out of date, and return their numbers."""
    cells = sorted(_cells.get(exercise_id, {}).values(), key=lambda cell: cell.number)
    for cell in cells:
        show.message(
            f"Out of date: this cell used the course's function for “{title}”, and yours is right now. Run it again, "
            "and then the cells below it that use its results.",
            display_id=cell.display_id,
            update=True,
        )
    return tuple(cell.number for cell in cells)
