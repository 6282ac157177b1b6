"""A submitted notebook: which function answers an exercise, and the statements that this function needs.

Runs inside the sandbox, on the standard library alone. Nothing here runs a statement of the notebook.
"""

import ast
from dataclasses import dataclass

from course_lib.grading import normalise, signals
from course_lib.grading.answers import Answers, Check, Choice, broken_answer, checks
from course_lib.grading.cells import LONGEST_CELL, Cell, read
from course_lib.grading.items import FUTURE, Item, Statement, item, items, root
from course_lib.grading.magics import parse
from course_lib.grading.slices import KERNEL, Slice, Slicer

__all__ = ["Notebook", "Program", "Statement", "load"]

MOST_NOTES, LONGEST_NOTE = 12, 300
_UPDATES = {"append", "extend", "update", "add", "insert", "setdefault", "fill_", "copy_"}


@dataclass(frozen=True)
class Program:
    """What to run for one exercise: every statement by itself and in order, then `function` is bound to the answer.

    Args:
        notes: what the student should know, such as which of two definitions was taken.
        code: the function and its helpers without names, comments and formatting.
        uses: names of course_lib that it calls; only_calls: whether it does nothing else.
    """

    statements: tuple[Statement, ...]
    function: str
    notes: tuple[str, ...] = ()
    code: str = ""
    uses: tuple[str, ...] = ()
    only_calls: bool = False


def load(content: bytes) -> "Notebook":
    """Read a notebook.

    Raises:
        ValueError: with the reason for the student, when it is none.
    """
    return Notebook(read(content))


class Notebook:
    """The cells of a notebook, taken apart once for all of its exercises."""

    def __init__(self, cells: list[Cell]):
        self.cells = cells
        self.items: list[Item] = []
        self.checks: list[Check] = []
        self.broken: list[tuple[Cell, str]] = []
        self.left_out: dict[str, set[int]] = {}  # names that statements which never run bind or change, and where
        self._future = False
        for cell in cells:
            if cell.kind == "code" and cell.text.strip():
                self._take(cell)
        self._answers = Answers(cells, self.items, self.checks)
        self._slicer = Slicer(self.items)

    def program(self, exercise: str, function: str) -> Program:
        """The statements that the answer to an exercise needs.

        Args:
            function: its usual name, which the notebook may have changed.

        Raises:
            LookupError: when nothing in the notebook answers the exercise.
            ValueError: when what answers is no Python.
        """
        try:
            return self._program(exercise, function)
        except RecursionError:
            raise ValueError(f"what answers {exercise} is nested too deeply to be followed.") from None

    def _program(self, exercise: str, function: str) -> Program:
        choice = self._answers.choose(exercise, function)
        if (choice is None or choice.item.stub) and (why := broken_answer(self.broken, exercise, function)):
            raise ValueError(why)
        if choice is None:
            raise LookupError(self._nothing(exercise, function))
        moments = [check.moment for check in self.checks if check.exercise == exercise]
        moment = max([at for at in moments if at > choice.item.position], default=float(len(self.items)))
        part = self._slicer.needs(choice.item, choice.name, moment)
        kernel = tuple(KERNEL[name] for name in sorted(part.missing & KERNEL.keys()))
        part.missing -= KERNEL.keys()
        return Program(
            (*kernel, *(each.statement for each in part.items)),
            choice.name,
            tuple(self._notes(choice, function, part)),
            *_signals(part.items, choice.item),
        )

    def _take(self, cell: Cell) -> None:
        """Add what may run of a cell, its checks, and the names of what may not."""
        before = len(self.items), len(self.checks)
        try:
            self._take_apart(cell)
        except ValueError as error:
            self.broken.append((cell, str(error)))
        except RecursionError:
            del self.items[before[0] :], self.checks[before[1] :]
            self.broken.append((cell, "it is nested too deeply"))

    def _take_apart(self, cell: Cell) -> None:
        text, tree = parse(cell.text, LONGEST_CELL)
        lines = text.split("\n")
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                self._future |= any(alias.name == "annotations" for alias in node.names)
                continue
            model = Statement(FUTURE if self._future else "", cell.name, cell=text)
            self.items += (taken := items(node, lines, model, cell.number, len(self.items)))
            if not taken:
                for name in _touches(node):
                    self.left_out.setdefault(name, set()).add(cell.number)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for exercise, given in checks(node):
                    self._check(exercise, given, cell)

    def _check(self, exercise: str, given: ast.expr, cell: Cell) -> None:
        """Note a check. What is not given by name gets one, bound by an item of its own."""
        named, name = isinstance(given, ast.Name), f"_checked_{len(self.checks)}"
        if not named:
            node = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], given), given)
            source = f"{name} = {ast.unparse(given)}"
            statement = Statement(source, cell.name, given.lineno)
            self.items.append(item(ast.fix_missing_locations(node), source, statement, len(self.items), cell.number))
        moment = len(self.items) - 0.5
        self.checks.append(Check(exercise, given.id if named else name, moment, not named))

    def _nothing(self, exercise: str, function: str) -> str:
        if text := [cell.name for cell in self.cells if cell.claims(exercise) and cell.kind != "code"]:
            return f"the cell of {exercise} ({text[0]}) is not a code cell; make it one again."
        return (
            f'nothing in the notebook answers {exercise}: there is no function {function}, no check("{exercise}", ...) '
            "with another, and no definition in the exercise's own cell."
        )

    def _notes(self, choice: Choice, function: str, part: Slice) -> list[str]:
        name, where = choice.name, f"cell {choice.item.number}"
        notes = []
        if name.startswith("_checked_"):
            notes.append(f"What check is given in {where} was graded.")
        elif name != function:
            notes.append(f"The function is called {name} here ({where}), not {function}; it was graded.")
        if choice.others:
            cells = ", ".join(str(each.number) for each in choice.others)
            notes.append(
                f"{name} is defined more than once (also in cell {cells}); the last one, in {where}, was graded."
            )
        if isinstance(choice.item.node, ast.AsyncFunctionDef):
            notes.append(f"{name} is an async function: a call gives a coroutine, not a value.")
        own = {bound for each in part.items for bound in each.binds} - {name}
        notes += [
            f"{each} is defined again further down; what stood there at the check was taken."
            for each in sorted(part.later & own)
        ]
        for each in sorted((own | part.missing) & self.left_out.keys()):
            cells = ", ".join(str(number) for number in sorted(self.left_out[each]))
            notes.append(
                f"{each} is also set outside of definitions and assignments (cell {cells}); grading skips that."
            )
        unknown = sorted(part.missing - self.left_out.keys())
        notes += [f"{each} is used, but nothing in the notebook defines it." for each in unknown]
        if unknown and self.broken:
            notes += [f"{cell.name} does not parse: {why}; what it defines is missing." for cell, why in self.broken]
        return [note[:LONGEST_NOTE] for note in notes[:MOST_NOTES]]


def _signals(items: list[Item], chosen: Item) -> tuple[str, tuple[str, ...], bool]:
    """What a human may want to look at; where nesting is too deep for it, there is nothing to see."""
    try:
        return normalise.code(items, chosen), signals.uses(items), signals.only_calls(items, chosen)
    except RecursionError:
        return "", (), False


def _touches(node: ast.stmt) -> set[str]:
    """Names that a statement which is not run would bind or change."""
    found = []
    for each in ast.walk(node):
        if isinstance(getattr(each, "ctx", None), ast.Store):
            found.append(each)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _UPDATES:
            found.append(each.func)
    return {name for each in found if (name := root(each))}
