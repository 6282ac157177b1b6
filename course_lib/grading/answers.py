"""Which function of a notebook answers an exercise: by its cell, by what its check is given, by its usual name.

Standard library only: this runs inside the sandbox.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from course_lib.grading.cells import Cell
from course_lib.grading.items import Item

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# What a value may be that is no constant, but may be no function either.
_PERHAPS = (ast.Call, ast.Attribute, ast.Name, ast.Subscript, ast.IfExp, ast.BoolOp, ast.Await, ast.NamedExpr)


@dataclass(frozen=True)
class Check:
    """A call of check: what it was given under which name, and between which items it stands."""

    exercise: str
    name: str
    moment: float
    expression: bool = False  # given as a lambda or the like; an item binds it to the name


@dataclass(frozen=True)
class Choice:
    """The item that answers, the name it answers by, and the others that could have."""

    item: Item
    name: str
    others: tuple[Item, ...] = ()


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

    def __init__(self, cells: list[Cell], items: list[Item], found: list[Check]):
        self.cells, self.items, self.checks = cells, items, found
        self.bound: dict[str, list[Item]] = {}
        for item in items:
            for name in item.binds:
                self.bound.setdefault(name, []).append(item)

    def choose(self, exercise: str, function: str) -> Choice | None:
        """The function that answers an exercise, or None. A real one comes before what the student was given."""
        names = list(dict.fromkeys(self._names(exercise, function)))
        for fits in (self.is_function, self._may_be_function, lambda name, item: item.stub):
            for name in names:
                if candidates := [item for item in self.bound.get(name, ()) if fits(name, item)]:
                    return Choice(candidates[-1], name, tuple(self._rivals(name, candidates)))
        return None

    def _names(self, exercise: str, function: str) -> Iterator[str]:
        """The names to look for, the surest first."""
        given = [check for check in self.checks if check.exercise == exercise]
        # A check that is given something else than it came with was changed on purpose.
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
            made = [item for item in own if not isinstance(item.node, (ast.Import, ast.ImportFrom))]
            helpers = {name for item in own for name in (item.eager | item.late) - item.binds} | taken
            placed = [name for item in reversed(made) for name in sorted(item.binds) if self.is_function(name, item)]
            yield from (name for name in placed if name not in helpers)

    def _rivals(self, name: str, candidates: list[Item]) -> Iterable[Item]:
        """Other real definitions under the same name, of which the chosen one is not made."""
        last = candidates[-1]
        return [item for item in candidates[:-1] if not (item.stub or name in last.eager)]

    def is_function(self, name: str, item: Item) -> bool:
        """Whether an item surely binds the name to something of the student's that can be called."""
        if item.stub:
            return False
        value = getattr(item.node, "value", None)
        if not isinstance(item.node, (ast.Assign, ast.AnnAssign)):
            return name in item.binds and name not in item.changes and not _only_assigned(name, item.node)
        return name in _plain_targets(item.node) and self._is_callable(value, name)

    def _is_callable(self, value: ast.expr | None, target: str, depth: int = 0) -> bool:
        if isinstance(value, ast.Lambda):
            return True
        if isinstance(value, ast.Name):
            return value.id != target and any(self._defines(item, value.id) for item in self.bound.get(value.id, ()))
        if isinstance(value, ast.Attribute):
            root = value.value.func if isinstance(value.value, ast.Call) else value.value
            name = _dotted_root(root)
            return any(isinstance(i.node, (ast.ClassDef, ast.Import, ast.ImportFrom)) for i in self.bound.get(name, ()))
        if isinstance(value, ast.Call) and depth < 4:
            return self._makes_callable(value, target, depth)
        return False

    def _makes_callable(self, call: ast.Call, target: str, depth: int) -> bool:
        """`partial(f, 2)`, `no_grad()(f)` around itself or another, `Scorer()`, `make_score(2)` with a def inside."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(each, ast.Name) and each.id == target for each in given):
            return True
        if any(self._is_callable(each, target, depth + 1) for each in given):
            return True
        made = [i.node for i in self.bound.get(getattr(call.func, "id", ""), ()) if call.func.id != target]
        return any(
            isinstance(inner, _NESTED) and (not isinstance(node, ast.ClassDef) or inner.name == "__call__")
            for node in made
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            for inner in (node.body if isinstance(node, ast.ClassDef) else ast.walk(node))
            if inner is not node and isinstance(inner, _NESTED)
        )

    def _defines(self, item: Item, name: str) -> bool:
        if isinstance(item.node, (ast.Assign, ast.AnnAssign)):
            return isinstance(item.node.value, ast.Lambda)
        return not item.stub and name not in item.changes and not _only_assigned(name, item.node)

    def _may_be_function(self, name: str, item: Item) -> bool:
        value = getattr(item.node, "value", None)
        return not item.stub and name not in item.changes and isinstance(value, _PERHAPS)


def _plain_targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _only_assigned(name: str, node: ast.stmt) -> bool:
    """Whether an `if` or `try` binds a name without ever defining or importing it."""
    if not isinstance(node, (ast.If, ast.Try)):
        return False
    inner = list(ast.walk(node))
    named = {getattr(each, "name", None) for each in inner if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    imported = {(a.asname or a.name).split(".")[0] for each in inner for a in getattr(each, "names", []) if _is(a)}
    values = [each.value for each in inner if isinstance(each, ast.Assign) and name in _plain_targets(each)]
    return name not in named | imported and not any(isinstance(value, ast.Lambda) for value in values)


def _is(alias: object) -> bool:
    return isinstance(alias, ast.alias)


def _dotted_root(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def broken_answer(broken: list[tuple[Cell, str]], exercise: str, function: str) -> str:
    """Why the cell that seems to answer is no Python: "cell 12 does not parse: line 3: ..."; empty if none."""
    named = re.compile(
        rf"^[ \t]*(async +)?(def|class) +{re.escape(function)}\b|^{re.escape(function)} *=", re.MULTILINE
    )
    for cell, why in reversed(broken):
        if cell.claims(exercise) or named.search(cell.text):
            return f"{cell.name} does not parse: {why}."
    return ""
