"""Choose the function that answers an exercise: by its cell, by the arguments of checks, by its usual name.

Of several definitions of one name the last one above the check counts, which is the one that the check saw. Without a
check that is given this name, the last one of the notebook counts; but if the cells of several exercises define the
name, each exercise has the one in its own cell.

Standard library only: this runs inside the sandbox.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from course_lib.grading.notebook.answers.callables import Callables
from course_lib.grading.notebook.answers.checks import Check
from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.cells import Cell


@dataclass(frozen=True)
class Choice:
    """The item that answers, and the name of its function.

    Args:
        check: the last check below the item that is given this name, if there is one.
        others: definitions of the same name that do not count. tried: checks of the exercise that were given
            something else.
    """

    item: Item
    name: str
    check: Check | None = None
    others: tuple[Item, ...] = ()
    tried: tuple[Check, ...] = ()


class Answers:
    """Everything that may answer an exercise in one notebook."""

    def __init__(self, cells: list[Cell], items: list[Item], check_calls: list[Check]):
        self.cells, self.items, self.checks = cells, items, check_calls
        self.callables = Callables(items)

    def choose(self, exercise: str, function: str) -> Choice | None:
        """Return the function that answers an exercise, or None. Real answers come before given code."""
        given = {check.name: check for check in self.checks if check.exercise == exercise}  # the last of each name
        names = list(dict.fromkeys(self._names(exercise, function)))
        results = {function, *given, *self._of_cells(exercise, function)}
        for fits in (self.callables.is_function, self.callables.may_be_function, lambda name, item: item.stub):
            for name in names:
                candidates = [item for item in self.callables.bound.get(name, ()) if fits(name, item)]
                seen = self._above(given[name], candidates, results) if name in given else []
                own = [] if seen else self._own(exercise, candidates)
                if chosen := seen or own or candidates:
                    return self._choice(exercise, name, chosen, given.get(name), own)
        return None

    def _own(self, exercise: str, candidates: list[Item]) -> list[Item]:
        """Return the candidates in the exercise's own cells if cells of other exercises have some too; else none."""
        claimed = {cell.number for cell in self.cells if cell.claims(exercise)}
        if not any(item.number in self._cells_of_others(exercise) for item in candidates):
            return []
        return [item for item in candidates if item.number in claimed]

    def _cells_of_others(self, exercise: str) -> set[int]:
        return {cell.number for cell in self.cells if cell.is_claimed and not cell.claims(exercise)}

    def _above(self, check: Check, candidates: list[Item], results: set[str]) -> list[Item]:
        """Return the items that a check may have been given: candidates, except those that cannot be functions."""
        name, places = check.name, {item.position for item in candidates}
        bound = [item for item in self.callables.bound.get(name, ()) if item.position < check.moment]
        found = [item for item in bound if item.position in places or self.callables.is_looked_up(name, item)]
        return found or [item for item in bound if self.callables.may_be_made(name, item, results)]

    def _choice(self, exercise: str, name: str, candidates: list[Item], check: Check | None, own: list[Item]) -> Choice:
        chosen = candidates[-1]
        seen = check if check and chosen.position < check.moment else None
        tried = [other for other in self.checks if other.exercise == exercise and other.name != name]
        others = self._cells_of_others(exercise) if own else set()
        rivals = [item for item in self._rivals(exercise, name, chosen) if item.number not in others]
        return Choice(chosen, name, seen, tuple(rivals), tuple(tried))

    def _names(self, exercise: str, function: str) -> Iterator[str]:
        """Yield the names to look for, the most reliable first."""
        given = [check for check in self.checks if check.exercise == exercise]
        # While the given check is unchanged, another one is a trial; without it, the student changed it on purpose.
        if any(check.name == function for check in given):
            yield function
        for check in reversed(given):
            if check.name != function:
                yield check.name
        yield from self._of_cells(exercise, function)
        yield from (check.name for check in reversed(given))
        yield function

    def _of_cells(self, exercise: str, function: str) -> Iterator[str]:
        """Yield names that the exercise's own cells bind, except those given to other checks and mere helpers."""
        claims = {cell.number: sure for cell in self.cells if (sure := cell.claims(exercise))}
        for sure in (2, 1):
            own = [item for item in self.items if claims.get(item.number) == sure]
            if any(function in item.binds for item in own):
                yield function  # code in its cell, or in that of its stub, is a helper
                continue
            definitions = [item for item in own if not isinstance(item.node, (ast.Import, ast.ImportFrom))]
            # A statement that binds nothing, such as `TABLE["name"] = f`, does not make the function a helper.
            makers = [item for item in own if item.binds - item.changes]
            helpers = {name for item in makers for name in (item.eager | item.late) - item.binds}
            helpers |= self._given_elsewhere(exercise)
            placed = [
                name
                for item in reversed(definitions)
                for name in sorted(item.binds)
                if self.callables.is_function(name, item)
            ]
            yield from (name for name in placed if name not in helpers)

    def _given_elsewhere(self, exercise: str) -> set[str]:
        """Return the names given to other exercises' checks, except names that those exercises' cells define."""
        others, taken = self._cells_of_others(exercise), set()
        for check in self.checks:
            above = [item for item in self.callables.bound.get(check.name, ()) if item.position < check.moment]
            if check.exercise != exercise and not (above and above[-1].number in others):
                taken.add(check.name)
        return taken

    def _rivals(self, exercise: str, name: str, chosen: Item) -> Iterable[Item]:
        """Return other real definitions of the name that the chosen one does not use and no other check is given."""
        sure = self.callables.is_function(name, chosen)
        fits = self.callables.is_function if sure else self.callables.may_be_function
        functions = [item for item in self.callables.bound[name] if fits(name, item)]
        for check in self.checks:
            if check.name == name and check.exercise != exercise:
                above = [item.position for item in functions if item.position < check.moment]
                functions = [item for item in functions if item.position != max(above, default=-1)]
        source = chosen.statement.source
        above = [item for item in functions if item.position < chosen.position and name not in chosen.eager]
        below = [item for item in functions if item.position > chosen.position and item.statement.source != source]
        return above + below


def broken_answer(broken: list[tuple[Cell, str]], exercise: str, function: str) -> str:
    """Explain why the cell that seems to answer is not Python: "cell 12 does not parse: line 3: ..."; "" if none."""
    named = re.compile(
        rf"^[ \t]*(async +)?(def|class) +{re.escape(function)}\b|^{re.escape(function)} *=", re.MULTILINE
    )
    for cell, why in reversed(broken):
        if cell.claims(exercise) or named.search(cell.text):
            return f"{cell.name} does not parse: {why}."
    return ""
