"""Which function of a notebook answers an exercise: by its cell, by what its check is given, by its usual name.

Standard library only: this runs inside the sandbox.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.callables import Callables
from course_lib.grading.notebook.cells import Cell


@dataclass(frozen=True)
class Check:
    """A call of check: what it was given under which name, and between which items it stands."""

    exercise: str
    name: str
    moment: float
    expression: bool = False  # given as a lambda or the like; an item binds it to the name
    number: int = 0  # of its cell


@dataclass(frozen=True)
class Choice:
    """The item that answers, the name it answers by, and the others that could have.

    Args:
        others: definitions of the same name. tried: checks of the exercise that were given something else.
    """

    item: Item
    name: str
    others: tuple[Item, ...] = ()
    tried: tuple[Check, ...] = ()


def checks(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Exercise and function of every `check("wanda.score", function)` inside a statement."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or _last(call.func) != "check":
            continue
        given = dict(zip(("exercise_id", "function"), call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords}
        exercise, function = given.get("exercise_id"), given.get("function")
        if isinstance(exercise, ast.Constant) and isinstance(exercise.value, str) and function is not None:
            yield exercise.value, function


def _last(function: ast.expr) -> str:
    return getattr(function, "attr", None) or getattr(function, "id", "")


class Answers:
    """Everything that may answer an exercise in one notebook."""

    def __init__(self, cells: list[Cell], items: list[Item], check_calls: list[Check]):
        self.cells, self.items, self.checks = cells, items, check_calls
        self.callables = Callables(items)

    def choose(self, exercise: str, function: str) -> Choice | None:
        """The function that answers an exercise, or None. A real one comes before what the student was given."""
        names = list(dict.fromkeys(self._names(exercise, function)))
        for fits in (self.callables.is_function, self.callables.may_be_function, lambda name, item: item.stub):
            for name in names:
                if candidates := [item for item in self.callables.bound.get(name, ()) if fits(name, item)]:
                    tried = [check for check in self.checks if check.exercise == exercise and check.name != name]
                    return Choice(candidates[-1], name, tuple(self._rivals(name, candidates)), tuple(tried))
        return None

    def _names(self, exercise: str, function: str) -> Iterator[str]:
        """The names to look for, the surest first."""
        given = [check for check in self.checks if check.exercise == exercise]
        # While the check stands as it came, another one tries something out; when none does, it was changed on purpose.
        if any(check.name == function for check in given):
            yield function
        for check in reversed(given):
            if check.name != function:
                yield check.name
        yield from self._of_cells(exercise, function)
        yield from (check.name for check in reversed(given))
        yield function

    def _of_cells(self, exercise: str, function: str) -> Iterator[str]:
        """What the exercise's own cells bind, without what other checks are given and what is only a helper there."""
        taken = {check.name for check in self.checks if check.exercise != exercise}
        claims = {cell.number: sure for cell in self.cells if (sure := cell.claims(exercise))}
        for sure in (2, 1):
            own = [item for item in self.items if claims.get(item.number) == sure]
            if any(function in item.binds for item in own):
                yield function  # what stands beside it, or beside its stub, is there to help
                continue
            definitions = [item for item in own if not isinstance(item.node, (ast.Import, ast.ImportFrom))]
            helpers = {name for item in own for name in (item.eager | item.late) - item.binds} | taken
            placed = [
                name
                for item in reversed(definitions)
                for name in sorted(item.binds)
                if self.callables.is_function(name, item)
            ]
            yield from (name for name in placed if name not in helpers)

    def _rivals(self, name: str, candidates: list[Item]) -> Iterable[Item]:
        """Other real definitions under the same name, of which the chosen one is not made."""
        last = candidates[-1]
        return [item for item in candidates[:-1] if not (item.stub or name in last.eager)]


def broken_answer(broken: list[tuple[Cell, str]], exercise: str, function: str) -> str:
    """Why the cell that seems to answer is no Python: "cell 12 does not parse: line 3: ..."; empty if none."""
    named = re.compile(
        rf"^[ \t]*(async +)?(def|class) +{re.escape(function)}\b|^{re.escape(function)} *=", re.MULTILINE
    )
    for cell, why in reversed(broken):
        if cell.claims(exercise) or named.search(cell.text):
            return f"{cell.name} does not parse: {why}."
    return ""
