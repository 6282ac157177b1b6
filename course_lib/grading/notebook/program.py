"""Read a submitted notebook: find the function that answers an exercise, and the statements that this function needs.

Runs inside the sandbox, on the standard library alone. Nothing here runs a statement of the notebook.
"""

import ast
from dataclasses import dataclass, replace

from course_lib.grading.notebook import notes
from course_lib.grading.notebook.answers.checks import Check, CheckCalls
from course_lib.grading.notebook.answers.choice import Answers, broken_answer
from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.cells import LONGEST_CELL, MOST_STATEMENTS, Cell, read
from course_lib.grading.notebook.experiments import Reader, Skipped, shown
from course_lib.grading.notebook.likeness import library_calls, normalise
from course_lib.grading.notebook.magics import parse, written_file
from course_lib.grading.notebook.slices import KERNEL, Question, Slicer
from course_lib.grading.notebook.statements import DEFINITIONS, FUTURE, WITHS, Statement, source_of, split

__all__ = ["Notebook", "Program", "Statement", "load"]


@dataclass(frozen=True)
class Program:
    """The code to run for one exercise: statements, one by one and in order, and the name of the function that answers.

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
        ValueError: with the reason for the student, if it is not a notebook.
    """
    return Notebook(read(content))


class Notebook:
    """The cells of a notebook, parsed once for all of its exercises."""

    def __init__(self, cells: list[Cell]):
        self.cells = cells
        self.items: list[Item] = []
        self.checks: list[Check] = []
        self.broken: list[tuple[Cell, str]] = []
        self.skipped: list[Skipped] = []  # statements that never run
        self._future = False
        read, statements = [], []
        for taken in (self._read(cell) for cell in cells if cell.kind == "code" and cell.text.strip()):
            if taken:
                read.append(taken)
                statements += taken.tree.body
                if len(statements) > MOST_STATEMENTS:
                    raise ValueError(f"got more than {MOST_STATEMENTS} statements; expected a notebook for people.")
        calls = CheckCalls()
        self._given = {statement: calls.read(statement) for statement in statements}
        self._unread = calls.unread
        self.unread_checks: list[int] = []  # the cells with a call of check that cannot be followed
        self._reader = Reader(statements, calls.functions)
        for taken in read:
            self._take(taken)
        self._answers = Answers(cells, self.items, self.checks)
        self._slicer = Slicer(self.items)

    def program(self, exercise: str, function: str) -> Program:
        """Return the statements that the answer to an exercise needs.

        Args:
            function: its usual name, which the notebook may have changed.

        Raises:
            LookupError: if nothing in the notebook answers the exercise.
            ValueError: if the code that answers is not valid Python.
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
            raise LookupError(notes.nothing(self.cells, exercise, function, self.unread_checks))
        moments = [check.moment for check in self.checks if check.exercise == exercise]
        later = [at for at in moments if at > choice.item.position]
        moment = choice.check.moment if choice.check else max(later, default=float(len(self.items)))
        part = self._slicer.needs(Question(choice.item, choice.name, moment))
        skipped = [each for each in self.skipped if each.before < moment + 1]
        kernel = tuple(KERNEL[name] for name in sorted(part.missing & KERNEL.keys()))
        part.missing -= KERNEL.keys()
        return Program(
            (*kernel, *(needed.statement for needed in part.items)),
            choice.name,
            notes.notes(choice, function, part, skipped, self.broken),
            *_signals(part.items, choice.item),
        )

    def _read(self, cell: Cell) -> "_Read | None":
        """Parse a cell, or return None if it is not Python that can be followed."""
        try:
            if written := written_file(cell.text):
                return _Read(cell, written, ast.parse(written))
            return _Read(cell, *parse(cell.text, LONGEST_CELL))
        except ValueError as error:
            self.broken.append((cell, str(error)))
        except RecursionError:
            self.broken.append((cell, "it is nested too deeply"))
        return None

    def _take(self, read: "_Read") -> None:
        """Add the statements of a cell that may run, its checks, and the statements that may not run."""
        before = len(self.items), len(self.checks), len(self.skipped)
        try:
            self._take_apart(read)
        except RecursionError:
            for listed, length in zip((self.items, self.checks, self.skipped), before, strict=True):
                del listed[length:]
            self.broken.append((read.cell, "it is nested too deeply"))

    def _take_apart(self, read: "_Read") -> None:
        lines, cell = read.text.split("\n"), read.cell
        for whole in read.tree.body:
            if isinstance(whole, ast.ImportFrom) and whole.module == "__future__":
                self._future |= any(alias.name == "annotations" for alias in whole.names)
                continue
            above = len(self.items)
            for node in split(whole, self._reader):
                source = source_of(whole, lines) if node is whole else ast.unparse(node)
                first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
                future = FUTURE if self._future else ""
                statement = Statement(future + source, cell.name, first - bool(future), read.text)
                made = self._reader.item(node, statement, len(self.items), cell.number)
                # A `with` may suppress an error of its body: then an earlier value remains.
                self.items.append(replace(made, replaces=frozenset()) if isinstance(whole, WITHS) else made)
            for leaf, reason in self._reader.skipped(whole):
                self.skipped.append(Skipped(self._reader.touches(leaf), above, cell.number, shown(leaf), reason))
            if not isinstance(whole, DEFINITIONS):
                self.unread_checks += [cell.number] if whole in self._unread else []
                for exercise, given in self._given[whole]:
                    self._check(exercise, given, cell)

    def _check(self, exercise: str, given: ast.expr, cell: Cell) -> None:
        """Record a check. A function without a name gets one, bound by an item of its own."""
        named, name = isinstance(given, ast.Name), f"_checked_{len(self.checks)}"
        if not named:
            node = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], given), given)
            source = f"{name} = {ast.unparse(given)}"
            statement = Statement(source, cell.name, given.lineno)
            place = len(self.items)
            self.items.append(self._reader.item(ast.fix_missing_locations(node), statement, place, cell.number))
        moment = len(self.items) - 0.5
        self.checks.append(Check(exercise, given.id if named else name, moment, not named, cell.number))


@dataclass(frozen=True)
class _Read:
    """A cell as Python: its text, with the same number of lines, and its syntax tree."""

    cell: Cell
    text: str
    tree: ast.Module


def _signals(items: list[Item], chosen: Item) -> tuple[str, tuple[str, ...], bool]:
    """Return signals for a human; empty if the code is nested too deeply to analyse."""
    try:
        return normalise.code(items, chosen), library_calls.uses(items), library_calls.only_calls(items, chosen)
    except RecursionError:
        return "", (), False
