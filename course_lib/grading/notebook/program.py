"""A submitted notebook: which function answers an exercise, and the statements that this function needs.

Runs inside the sandbox, on the standard library alone. Nothing here runs a statement of the notebook.
"""

import ast
from dataclasses import dataclass

from course_lib.grading.notebook import library_calls, normalise, notes
from course_lib.grading.notebook.answers import Answers, Check, broken_answer, checks
from course_lib.grading.notebook.bindings import Item, item, items
from course_lib.grading.notebook.cells import LONGEST_CELL, Cell, read
from course_lib.grading.notebook.magics import parse
from course_lib.grading.notebook.slices import KERNEL, Question, Slicer
from course_lib.grading.notebook.statements import FUTURE, Statement

__all__ = ["Notebook", "Program", "Statement", "load"]


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
            raise LookupError(notes.nothing(self.cells, exercise, function))
        moments = [check.moment for check in self.checks if check.exercise == exercise]
        moment = max([at for at in moments if at > choice.item.position], default=float(len(self.items)))
        part = self._slicer.needs(Question(choice.item, choice.name, moment))
        kernel = tuple(KERNEL[name] for name in sorted(part.missing & KERNEL.keys()))
        part.missing -= KERNEL.keys()
        return Program(
            (*kernel, *(needed.statement for needed in part.items)),
            choice.name,
            notes.notes(choice, function, part, self.left_out, self.broken),
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
                for name in notes.touches(node):
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
            try:
                self.items.append(
                    item(ast.fix_missing_locations(node), source, statement, len(self.items), cell.number)
                )
            except SyntaxError:  # such as await, which only a kernel runs here
                return
        moment = len(self.items) - 0.5
        self.checks.append(Check(exercise, given.id if named else name, moment, not named, cell.number))


def _signals(items: list[Item], chosen: Item) -> tuple[str, tuple[str, ...], bool]:
    """What a human may want to look at; where nesting is too deep for it, there is nothing to see."""
    try:
        return normalise.code(items, chosen), library_calls.uses(items), library_calls.only_calls(items, chosen)
    except RecursionError:
        return "", (), False
