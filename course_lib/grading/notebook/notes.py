"""Write notes that tell a student how the answer was found.

Standard library only: this runs inside the sandbox.
"""

import ast
import re

from course_lib.grading.notebook.answers.choice import Choice
from course_lib.grading.notebook.cells import Cell
from course_lib.grading.notebook.disk import ENVIRONMENT, EVERY, FILE, UNNAMED
from course_lib.grading.notebook.experiments import Skipped
from course_lib.grading.notebook.names import dotted, origins
from course_lib.grading.notebook.slices import Slice

MOST, LONGEST = 12, 300  # number of notes, and characters of each
_PROCESSES = re.compile(r"(torch\.)?multiprocessing\.(?!cpu_count).+|concurrent\.futures\.(.+\.)?ProcessPoolExecutor")


def notes(
    choice: Choice, function: str, part: Slice, skipped: list[Skipped], broken: list[tuple[Cell, str]]
) -> tuple[str, ...]:
    """Write the notes on one answer.

    Args:
        function: the usual name.
        skipped: statements above the check that are not run.
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
    notes += _several(choice)
    if isinstance(choice.item.node, ast.AsyncFunctionDef):
        notes.append(f"{name} is an async function: a call gives a coroutine, not a value.")
    own = {bound for item in part.items for bound in item.binds} - {name}
    notes += [
        f"{rebound} is defined again further down; grading used the value that it had at the check."
        for rebound in sorted(part.later & own)
    ]
    missed = _missed(choice, part, skipped)
    for each, names in missed.items():
        notes.append(f"{_needed(names)}, but `{each.text}` in cell {each.number} is not run: {each.reason}.")
    if processes := _processes(part):
        notes.append(
            f"{processes} is called, but where answers are graded there are no semaphores, so that pools, queues and "
            "locks of multiprocessing fail; calculate in one process."
        )
    unknown = sorted(part.missing.difference(*missed.values()))
    notes += [_undefined(missing, part) for missing in unknown]
    if unknown and broken:
        notes += [f"{cell.name} does not parse: {why}; what it defines is missing." for cell, why in broken]
    return tuple(note[:LONGEST] for note in notes[:MOST])


def _several(choice: Choice) -> list[str]:
    """Say which of several definitions of one name was graded, and why."""
    name, where, position = choice.name, f"cell {choice.item.number}", choice.item.position
    above = sorted({other.number for other in choice.others if other.position < position})
    below = sorted({other.number for other in choice.others if other.position > position})
    said = []
    last = "the last one above its check" if choice.check and below else "the last one"
    elsewhere = [number for number in above if number != choice.item.number]
    if elsewhere:
        cells = ", ".join(map(str, elsewhere)) + (f", and above it in {where}" if elsewhere != above else "")
        said.append(f"{name} is defined more than once (also in cell {cells}); {last}, in {where}, was graded.")
    elif above:
        n_here = 1 + sum(other.position < position for other in choice.others)
        times = "twice" if n_here == 2 else f"{n_here} times"
        said.append(f"{name} is defined {times} in {where}; {last} was graded.")
    if below and not choice.check:
        cells = ", ".join(map(str, below))
        said.append(
            f"{name} is defined again (cell {cells}), but the definition in the exercise's own cell, {where}, was "
            "graded. If the later one is your answer, give it a name of its own and call check below it."
        )
    elif below:
        cells = ", ".join(map(str, below))
        said.append(
            f"{name} is defined again below its check (cell {cells}), but the definition above the check, in {where}, "
            "was graded. If the later one is your answer, call check again below it."
        )
    return said


def nothing(cells: list[Cell], exercise: str, function: str, unread: list[int]) -> str:
    """Explain why there is no answer.

    Args:
        unread: the cells whose call of check cannot be followed.
    """
    if text := [cell.name for cell in cells if cell.claims(exercise) and cell.kind != "code"]:
        return f"the cell of {exercise} ({text[0]}) is not a code cell; make it one again."
    said = (
        f'nothing in the notebook answers {exercise}: there is no function {function}, no check("{exercise}", ...) '
        "with another, and no definition in the exercise's own cell."
    )
    if unread:
        where = ", ".join(str(number) for number in dict.fromkeys(unread))
        said += (
            f" The grader cannot tell which exercise and function check is given in cell {where}; write the call out, "
            f'as check("{exercise}", your_function).'
        )
    return said


def _needed(names: list[str]) -> str:
    """Format names that are needed; files appear under their names."""
    files = dict.fromkeys((EVERY, UNNAMED), "what lies on the disk") | {ENVIRONMENT: "the environment"}
    plain = list(dict.fromkeys(files.get(name, name.removeprefix(FILE)) for name in names))
    return f"{', '.join(plain)} {'is' if len(plain) == 1 else 'are'} needed"


def _undefined(name: str, part: Slice) -> str:
    if name in part.deleted:
        return f"{name} is used, but `del` in cell {part.deleted[name]} deletes it before that."
    return f"{name} is used, but nothing in the notebook defines it."


def _missed(choice: Choice, part: Slice, skipped: list[Skipped]) -> dict[Skipped, list[str]]:
    """Return the statements that are not run, each with the names that nothing below it surely sets instead."""
    needed = part.missing | {name for item in part.items for name in item.binds | item.changes}
    needed |= {name for item in part.items for name in item.eager | item.late if name.startswith(FILE)}
    last: dict[str, int] = {}
    for item in part.items:
        last |= {name: max(last.get(name, 0), item.position) for name in item.replaces}
    found = {each: sorted(n for n in each.touches & needed if last.get(n, -1) < each.before) for each in skipped}
    return {each: names for each, names in found.items() if names}


def _processes(part: Slice) -> str:
    """Find code of the answer that starts processes which wait for each other; an empty text if there is none."""
    imported = origins(item.node for item in part.items)
    calls = (inner for item in part.items for inner in ast.walk(item.node) if isinstance(inner, ast.Call))
    return next((name for call in calls if _PROCESSES.fullmatch(name := dotted(call.func, imported))), "")
