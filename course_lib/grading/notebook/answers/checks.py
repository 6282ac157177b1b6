"""Calls of `check` in a notebook: for which exercise, and what they are given.

The exercise may be written out, or be a name, an entry or a loop's variable whose text stands further up.
Standard library only: this runs inside the sandbox.
"""

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.grading.notebook.names import bound_at_once

LONGEST = 200  # characters of an exercise's name that is put together
Pair = tuple[ast.expr, ast.expr]


@dataclass(frozen=True)
class Check:
    """A call of check: what it was given under which name, and between which items it stands."""

    exercise: str
    name: str
    moment: float
    expression: bool = False  # given as a lambda or the like; an item binds it to the name
    number: int = 0  # of its cell


class CheckCalls:
    """Reads statements from the top of a notebook down, and remembers the literal values that names have.

    Args:
        functions: the names of what checks are given.
    """

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self._called = {"check"}
        self._values: dict[str, object] = {}
        self._tables: dict[str, ast.expr] = {}  # lists and dictionaries as they are written

    def read(self, statement: ast.stmt) -> list[tuple[str, ast.expr]]:
        """Exercise and function of every `check("wanda.score", function)` inside the next statement."""
        calls = [pair for part in ast.walk(statement) if (pair := self._given(part))]
        unrolled = [pair for call in calls for pair in self._unrolled(call, statement)]
        given = [function for _, function in (*calls, *unrolled)]
        self.functions |= {function.id for function in given if isinstance(function, ast.Name)}
        self._remember(statement)
        return [(text, function) for named, function in unrolled if (text := self._text(named))]

    def _given(self, call: ast.AST) -> Pair | None:
        called = getattr(call, "func", None)
        if (getattr(called, "attr", None) or getattr(called, "id", "")) not in self._called:
            return None
        given = dict(zip(("exercise_id", "function"), call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords}
        if not {"exercise_id", "function"} <= given.keys():
            return None
        return given["exercise_id"], _by_name(given["function"])

    def _remember(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("course_lib.workbook"):
            self._called |= {alias.asname for alias in statement.names if alias.name == "check" and alias.asname}
        bound = bound_at_once(statement)
        for name in bound:
            self._values.pop(name, None)
            self._tables.pop(name, None)
        for name, value in _assigned(statement):
            if isinstance(value, (ast.List, ast.Tuple, ast.Dict)):
                self._tables[name] = value
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                self._values[name] = ast.literal_eval(value)

    def _text(self, expression: ast.expr) -> str:
        """The text that an expression is, as far as can be read."""
        parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
        if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
            parts = [expression.left, expression.right]
        values = [self._value(getattr(part, "value", part) if _is_plain(part) else part) for part in parts]
        joined = "".join(values) if all(isinstance(value, str) for value in values) else ""
        return joined if len(joined) <= LONGEST else ""

    def _value(self, expression: ast.expr) -> object:
        if isinstance(expression, ast.Constant):
            return expression.value
        if isinstance(expression, ast.Name):
            return self._values.get(expression.id)
        if isinstance(expression, ast.NamedExpr):
            return getattr(expression.value, "value", None)
        if isinstance(expression, ast.Subscript) and isinstance(expression.value, ast.Name):
            with contextlib.suppress(LookupError, TypeError):
                return self._values[expression.value.id][self._value(expression.slice)]
        return None

    def _unrolled(self, call: Pair, statement: ast.stmt) -> Iterator[Pair]:
        """What a call in a loop over pairs that are written out is given, round by round; else the call as it is."""
        named = [getattr(part, "id", "") for part in call]
        for loop in (part for part in ast.walk(statement) if hasattr(part, "iter")):
            if getattr(loop.target, "id", None) == named[0]:
                for key in self._keys(loop.iter):
                    yield key, _entry_of(call[1], named[0], key)
                return
            targets = [getattr(target, "id", None) for target in getattr(loop.target, "elts", ())]
            if len(targets) == 2 and named[0] in targets:
                places = [targets.index(name) if name in targets else None for name in named]
                for row in self._rows(loop.iter):
                    yield row[places[0]], call[1] if places[1] is None else row[places[1]]
                return
        yield call

    def _keys(self, iterated: ast.expr) -> list[ast.Constant]:
        """The keys of a dictionary, or the entries of a list, that is written out here or further up."""
        table = self._tables.get(iterated.id) if isinstance(iterated, ast.Name) else iterated
        parts = table.keys if isinstance(table, ast.Dict) else getattr(table, "elts", ())
        return [part for part in parts if isinstance(part, ast.Constant)]

    def _rows(self, iterated: ast.expr) -> Iterator[Pair]:
        """The pairs that a loop goes over: of a list, or of a dictionary's items.

        Of a table that has a name the functions are its entries, since the names in it may mean something else by now.
        """
        items = isinstance(iterated, ast.Call) and getattr(iterated.func, "attr", "") == "items"
        whole = iterated.func.value if items else iterated
        table = self._tables.get(whole.id) if isinstance(whole, ast.Name) else whole
        if isinstance(table, ast.Dict) and items:
            pairs = [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key]
            entries = [(key, _entry(whole, key)) for key, _ in pairs]
        elif isinstance(table, (ast.List, ast.Tuple)) and not items:
            rows = [(n, row.elts) for n, row in enumerate(table.elts) if len(getattr(row, "elts", ())) == 2]
            pairs = [(first, second) for _, (first, second) in rows]
            entries = [tuple(_entry(whole, ast.Constant(n), ast.Constant(at)) for at in range(2)) for n, _ in rows]
        else:
            return
        for pair, entry in zip(pairs, entries, strict=True):
            named = isinstance(whole, ast.Name)
            yield tuple(e if named and isinstance(p, ast.Name) else p for p, e in zip(pair, entry, strict=True))


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names and what an assignment gives them, also of several at once."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        targets, values = getattr(target, "elts", [target]), [statement.value]
        if len(targets) > 1:
            values = getattr(statement.value, "elts", ())
        if len(targets) == len(values):
            yield from ((t.id, v) for t, v in zip(targets, values, strict=True) if isinstance(t, ast.Name))


def _by_name(function: ast.expr) -> ast.expr:
    """`globals()["answer"]` as the name that it is."""
    if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Call):
        key = getattr(function.slice, "value", None)
        if getattr(function.value.func, "id", "") in ("globals", "locals") and isinstance(key, str):
            return ast.copy_location(ast.Name(key, ast.Load()), function)
    return function


def _entry_of(function: ast.expr, loops_name: str, key: ast.expr) -> ast.expr:
    """`TABLE[name]` in a loop over names as `TABLE["score"]`; anything else as it is."""
    by_loop = isinstance(function, ast.Subscript) and getattr(function.slice, "id", "") == loops_name
    return _entry(function.value, key) if by_loop else function


def _entry(table: ast.expr, *keys: ast.expr) -> ast.expr:
    """`table[first][second]`"""
    for key in keys:
        table = ast.fix_missing_locations(ast.copy_location(ast.Subscript(table, key, ast.Load()), table))
    return table


def _is_plain(part: ast.expr) -> bool:
    """Whether a part of an f-string is a value that nothing formats."""
    return isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
