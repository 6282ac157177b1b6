"""Find the statements that bind a name to a callable, without running them.

Standard library only: this runs inside the sandbox.
"""

import ast

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.names import IMPORTS
from course_lib.grading.notebook.statements import DEFINITIONS

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Expressions whose value is not a constant, but possibly not a function either.
_PERHAPS = (ast.Call, ast.Attribute, ast.Name, ast.Subscript, ast.IfExp, ast.BoolOp, ast.Await, ast.NamedExpr)
_PERHAPS += (ast.Tuple,)  # of several names, one expression for each


class Callables:
    """The names at the top level of a notebook, and the values that each statement binds to them."""

    def __init__(self, items: list[Item]):
        self.bound: dict[str, list[Item]] = {}
        for item in items:
            for name in item.binds:
                self.bound.setdefault(name, []).append(item)

    def is_function(self, name: str, item: Item) -> bool:
        """Check whether an item certainly binds the name to a callable of the student's."""
        if item.stub:
            return False
        value = getattr(item.node, "value", None)
        if not isinstance(item.node, (ast.Assign, ast.AnnAssign)):
            made = not _only_assigned(name, item.node) or self._wraps(name, item.node)
            return name in item.binds and name not in item.changes and made
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
        """Check for `partial(f, 2)`, `no_grad()(f)` around any function, `Scorer()`, or `make(2)` with an inner def."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(argument, ast.Name) and argument.id == target for argument in given):
            return True
        if any(self._is_callable(argument, target, depth + 1) for argument in given):
            return True
        definitions = [i.node for i in self.bound.get(getattr(call.func, "id", ""), ()) if call.func.id != target]
        return any(
            isinstance(inner, _NESTED) and (not isinstance(node, ast.ClassDef) or inner.name == "__call__")
            for node in definitions
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            for inner in (node.body if isinstance(node, ast.ClassDef) else ast.walk(node))
            if inner is not node and isinstance(inner, _NESTED)
        )

    def _wraps(self, name: str, node: ast.stmt) -> bool:
        """Check for `for wrap in wrappers: f = wrap(f)`, also in an `if` or a `with`."""
        return any(self._is_callable(value, name) for value in _assigned(name, node))

    def _defines(self, item: Item, name: str) -> bool:
        if isinstance(item.node, (ast.Assign, ast.AnnAssign)):
            return isinstance(item.node.value, ast.Lambda)
        return not item.stub and name not in item.changes and not _only_assigned(name, item.node)

    def is_looked_up(self, name: str, item: Item) -> bool:
        """Check whether an item binds a name to an entry, an attribute or the like: `f = TABLE["score"]`."""
        value = getattr(item.node, "value", None)
        return self.may_be_function(name, item) and not isinstance(value, (ast.Call, ast.Tuple))

    def may_be_made(self, name: str, item: Item, results: set[str]) -> bool:
        """Check whether an item binds a name to a call's result, if no answer computed it: `answer(weight, 2)`.

        Args:
            results: functions that are answers. A call without arguments, or with texts only, may return a function.
        """
        value = getattr(item.node, "value", None)
        if not self.may_be_function(name, item) or not isinstance(value, ast.Call):
            return False
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        texts = all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in given)
        return texts or getattr(value.func, "id", "") not in results

    def may_be_function(self, name: str, item: Item) -> bool:
        value = getattr(item.node, "value", None)
        return not item.stub and name not in item.changes and isinstance(value, _PERHAPS)


def _plain_targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _only_assigned(name: str, node: ast.stmt) -> bool:
    """Check whether a compound statement or a call binds a name without ever defining or importing it."""
    if isinstance(node, (*DEFINITIONS, *IMPORTS)):
        return False
    inner = list(ast.walk(node))
    if isinstance(node, ast.Expr) and any(getattr(part, "id", "") == "exec" for part in inner):
        return False
    named = {getattr(part, "name", None) for part in inner if isinstance(part, (ast.FunctionDef, ast.ClassDef))}
    imported = {(a.asname or a.name).split(".")[0] for part in inner for a in getattr(part, "names", []) if _is(a)}
    return name not in named | imported and not any(isinstance(v, ast.Lambda) for v in _assigned(name, node))


def _assigned(name: str, node: ast.stmt) -> list[ast.expr]:
    """Return the values that a statement assigns to a name."""
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Assign) and name in _plain_targets(part)]


def _is(alias: object) -> bool:
    return isinstance(alias, ast.alias)


def _dotted_root(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""
