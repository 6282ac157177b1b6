"""Find the calls of `check` in a notebook: their exercises and their functions.

The exercise may be a literal, or a name, an entry or a loop variable whose text is defined further up.
Standard library only: this runs inside the sandbox.
"""

import ast
import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from course_lib.grading.notebook.names import arguments_of, bound_at_once

LONGEST = 200  # characters of an exercise's name that is computed
DEEPEST = 8  # levels of nested expressions
MOST_ENTRIES = 500  # entries of a table that is filled step by step
MOST_PLACES = 20  # names in one expression that are replaced
Pair = tuple[ast.expr, ast.expr]


@dataclass(frozen=True)
class Check:
    """A call of check: the function and the name that it was given, and its position among the items."""

    exercise: str
    name: str
    moment: float
    expression: bool = False  # a lambda or another expression that is given directly; an item binds it to the name
    number: int = 0  # number of its cell


@dataclass(frozen=True)
class _Helper:
    """A function that passes its parameters to check: the arguments of check, and the values of the parameters."""

    parameters: tuple[str, ...]
    pair: Pair
    defaults: dict[str, ast.expr] = field(default_factory=dict)


_PARAMETERS = ("exercise_id", "function")
_CHECK = _Helper(_PARAMETERS, tuple(ast.Name(name, ast.Load()) for name in _PARAMETERS))


class CheckCalls:
    """Read the statements of a notebook from top to bottom, and remember literal values of names.

    Args:
        functions: the names of functions that are given to checks.
        unread: statements that call check in a way that cannot be followed.
    """

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.unread: set[ast.stmt] = set()
        self._called = {"check"}
        self._helpers: dict[str, _Helper] = {}
        self._values: dict[str, object] = {}
        self._tables: dict[str, ast.expr] = {}  # lists and dictionaries as they are written, or after they are filled
        self._registered: list[str] = []  # texts that decorators get as arguments

    def read(self, statement: ast.stmt) -> list[tuple[str, ast.expr]]:
        """Return exercise and function of every `check("wanda.score", function)` inside the next statement."""
        try:
            return self._read(statement)
        except RecursionError:
            return []

    def _read(self, statement: ast.stmt) -> list[tuple[str, ast.expr]]:
        calls = [pair for part in ast.walk(statement) if (pair := self._given(part))]
        unrolled = [tuple(map(_by_name, pair)) for call in calls for pair in self._unrolled(call, statement)]
        given = [function for _, function in (*calls, *unrolled)]
        self.functions |= {function.id for function in given if isinstance(function, ast.Name)}
        self._remember(statement)
        read = [(text, function) for named, function in unrolled if (text := self._text(named))]
        if not read and any(self._is_check(part) for part in ast.walk(statement)):
            self.unread.add(statement)
        return read

    def _is_check(self, part: ast.AST) -> bool:
        name = _last_name(part.func) if isinstance(part, ast.Call) else ""
        return name in self._called or name in self._helpers

    def _given(self, call: ast.AST) -> Pair | None:
        if not isinstance(call, ast.Call):
            return None
        arguments, keywords, called = self._arguments(call), call.keywords, _last_name(call.func)
        if isinstance(call.func, ast.Call) and _last_name(call.func.func) == "partial":  # partial(check, id)(function)
            first, *rest = call.func.args or [None]
            arguments, keywords, called = rest + arguments, call.func.keywords + keywords, _last_name(first)
        if called in self._helpers:
            helper = self._helpers[called]
        elif called in self._called:
            helper = _CHECK
        else:
            return None
        given = helper.defaults | dict(zip(helper.parameters, arguments, strict=False))
        given |= {keyword.arg: keyword.value for keyword in keywords}
        if not set(helper.parameters) <= given.keys():
            return None
        return tuple(_by_name(_put(part, given)) for part in helper.pair)

    def _arguments(self, call: ast.Call) -> list[ast.expr]:
        """Return the positional arguments of a call; tuple and list literals after a star are unpacked."""
        arguments = []
        for argument in call.args:
            inner = argument.value if isinstance(argument, ast.Starred) else None
            table = self._tables.get(inner.id) if isinstance(inner, ast.Name) else inner
            if isinstance(inner, ast.Name) and isinstance(table, (ast.List, ast.Tuple)):
                arguments += [
                    part if isinstance(part, ast.Constant) else _entry(inner, ast.Constant(n))
                    for n, part in enumerate(table.elts)
                ]
            else:
                arguments += table.elts if isinstance(table, (ast.List, ast.Tuple)) else [argument]
        return arguments

    def _remember(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("course_lib.workbook"):
            self._called |= {alias.asname for alias in statement.names if alias.name == "check" and alias.asname}
        self._fill(statement)
        for name in bound_at_once(statement):
            self._values.pop(name, None)
            self._tables.pop(name, None)
            self._helpers.pop(name, None)
        for name, value in _assigned(statement):
            if _last_name(value) in self._called:
                self._called.add(name)
            if isinstance(value, ast.Lambda):
                self._remember_helper(name, value.args, value.body)
            if table := _table(value):
                self._tables[name] = table
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                self._values[name] = ast.literal_eval(value)
        if isinstance(statement, ast.FunctionDef):
            self._remember_helper(statement.name, statement.args, *statement.body)
        for decorator in getattr(statement, "decorator_list", ()):
            given = [part.value for part in getattr(decorator, "args", ()) if isinstance(part, ast.Constant)]
            self._registered += [text for text in given if isinstance(text, str)][
                : MOST_ENTRIES - len(self._registered)
            ]

    def _remember_helper(self, name: str, arguments: ast.arguments, *body: ast.AST) -> None:
        """Remember `def test(name, f): return check(name, f)`: its arguments are substituted where it is called."""
        parameters = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
        # Only functions that call check themselves: with helpers of helpers the substituted code could grow endlessly.
        calls = [part for line in body for part in ast.walk(line) if self._is_check(part)]
        pair = self._given(calls[0]) if len(calls) == 1 and _last_name(calls[0].func) in self._called else None
        if not pair or name in self._called:
            return
        used = {part.id for each in pair for part in ast.walk(each) if isinstance(part, ast.Name)}
        if used & set(parameters):
            values = arguments.defaults
            defaults = dict(zip(parameters[len(parameters) - len(values) :], values, strict=True))
            self._helpers[name] = _Helper(parameters, pair, defaults)

    def _fill(self, statement: ast.stmt) -> None:
        """Treat `TABLE["name"] = function` and `TABLE.append(function)` as if the table had been written with them."""
        value = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        if isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and _last_name(value.func) == "append":
            name = getattr(getattr(value.func, "value", None), "id", "")
            table = self._tables.get(name)
            if isinstance(table, ast.List) and len(value.args) == 1 and len(table.elts) < MOST_ENTRIES:
                self._tables[name] = ast.List([*table.elts, _as_entry(value.args[0])], ast.Load())
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            name = getattr(getattr(target, "value", None), "id", "") if isinstance(target, ast.Subscript) else ""
            key = self._text(target.slice) if name else ""
            table = self._tables.get(name)
            if key and isinstance(table, ast.Dict) and len(table.keys) < MOST_ENTRIES:
                entries = {getattr(k, "value", k): (k, v) for k, v in zip(table.keys, table.values, strict=True)}
                entries[key] = ast.copy_location(ast.Constant(key), target), _as_entry(statement.value)
                self._tables[name] = ast.Dict(*map(list, zip(*entries.values(), strict=True)))

    def _text(self, expression: ast.expr) -> str:
        """Return the text of an expression, if it can be computed without running it."""
        value = self._value(expression)
        return value if isinstance(value, str) and len(value) <= LONGEST else ""

    def _value(self, expression: ast.expr, depth: int = 0) -> object:
        if isinstance(expression, ast.Constant):
            return expression.value
        if isinstance(expression, ast.Name):
            return self._values.get(expression.id)
        if isinstance(expression, ast.NamedExpr):
            return getattr(expression.value, "value", None)
        if isinstance(expression, ast.Subscript) and isinstance(expression.value, ast.Name):
            with contextlib.suppress(LookupError, TypeError):
                return self._values[expression.value.id][self._value(expression.slice)]
        return self._joined(expression, depth + 1) if depth < DEEPEST else None

    def _joined(self, expression: ast.expr, depth: int) -> str | None:
        """Return the text of an f-string, or of `+`, `%` and `join`."""
        between, parts = "", []
        if isinstance(expression, ast.JoinedStr):
            parts = [part.value if _is_plain(part) else part for part in expression.values]
        elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
            parts = [expression.left, expression.right]
        elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mod):
            given = getattr(expression.right, "elts", [expression.right])
            pieces = str(self._value(expression.left, depth)).split("%s")
            if len(pieces) == len(given) + 1 and "%" not in "".join(pieces):
                parts = [part for n, piece in enumerate(pieces) for part in (ast.Constant(piece), *given[n : n + 1])]
        elif isinstance(expression, ast.Call) and _last_name(expression.func) == "join" and len(expression.args) == 1:
            between = self._value(getattr(expression.func, "value", ast.Constant(None)), depth)
            parts = getattr(expression.args[0], "elts", ())
        values = [self._value(part, depth) for part in parts]
        if not values or not all(isinstance(value, str) and len(value) <= LONGEST for value in (between, *values)):
            return None
        return between.join(values)

    def _unrolled(self, call: Pair, statement: ast.stmt) -> Iterator[Pair]:
        """Yield a call in a loop over a known table once per round; otherwise yield the call as it is."""
        names = {part.id for part in ast.walk(call[0]) if isinstance(part, ast.Name)}
        for loop in (part for part in ast.walk(statement) if hasattr(part, "iter")):
            targets = [getattr(target, "id", "") for target in getattr(loop.target, "elts", [loop.target])]
            if names & set(targets):
                rounds = self._rows(loop.iter) if len(targets) == 2 else ((key,) for key in self._keys(loop.iter))
                for values in rounds:
                    given = dict(zip(targets, values, strict=False))
                    yield _put(call[0], given), _put(call[1], given)
                return
        yield call

    def _keys(self, iterated: ast.expr) -> list[ast.Constant]:
        """Return the keys of a dictionary, or the entries of a list, that is a literal here or further up."""
        table = self._tables.get(iterated.id) if isinstance(iterated, ast.Name) else iterated
        if isinstance(table, ast.Call) and _last_name(table.func) in ("keys", "list", "sorted", "tuple"):
            inner = table.args[0] if table.args else getattr(table.func, "value", None)
            return self._keys(inner) if inner is not None else []
        if isinstance(table, ast.Call) and _last_name(table.func) == "split" and not table.args:
            text = self._text(getattr(table.func, "value", table))
            return [ast.copy_location(ast.Constant(word), table) for word in text.split()]
        parts = table.keys if isinstance(table, ast.Dict) else getattr(table, "elts", ())
        keys = [part for part in parts if isinstance(part, ast.Constant)]
        if not keys and isinstance(table, ast.Dict):  # a decorator fills it
            keys = [ast.copy_location(ast.Constant(text), iterated) for text in self._registered]
        return keys

    def _rows(self, iterated: ast.expr) -> Iterator[Pair]:
        """Yield the pairs that a loop iterates over: from a list, a dictionary's items, or a `zip`.

        For a table with a name we use its entries as functions, since the names in it may have been bound again.
        """
        if isinstance(iterated, ast.Call) and _last_name(iterated.func) == "zip" and len(iterated.args) == 2:
            yield from zip(*map(self._entries, iterated.args), strict=False)
            return
        items = isinstance(iterated, ast.Call) and getattr(iterated.func, "attr", "") == "items"
        whole = iterated.func.value if items else iterated
        table = self._tables.get(whole.id) if isinstance(whole, ast.Name) else whole
        if items and isinstance(whole, ast.Name) and isinstance(table, ast.Dict) and not table.keys:
            yield from ((key, _entry(whole, key)) for key in self._keys(whole))
        elif isinstance(table, ast.Dict) and items:
            pairs = [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key]
            yield from ((key, _lasting(whole, value, key)) for key, value in pairs)
        elif isinstance(table, (ast.List, ast.Tuple)) and not items:
            for n, row in enumerate(table.elts):
                parts = getattr(row, "elts", ())
                if len(parts) == 2:
                    yield tuple(_lasting(whole, p, ast.Constant(n), ast.Constant(at)) for at, p in enumerate(parts))

    def _entries(self, whole: ast.expr) -> list[ast.expr]:
        """Return the entries of a list that is a literal or filled, or of a dictionary's keys or values."""
        method = _last_name(whole.func) if isinstance(whole, ast.Call) else ""
        inner = whole.func.value if method in ("keys", "values") and isinstance(whole.func, ast.Attribute) else whole
        table = self._tables.get(inner.id) if isinstance(inner, ast.Name) else inner
        if isinstance(table, ast.Dict) and method == "values":
            return [_lasting(inner, v, k) for k, v in zip(table.keys, table.values, strict=True) if k]
        if isinstance(table, (ast.List, ast.Tuple)):
            return [_lasting(whole, part, ast.Constant(n)) for n, part in enumerate(table.elts)]
        return self._keys(whole)


class _Put(ast.NodeTransformer):
    """Substitute expressions for names."""

    def __init__(self, given: dict[str, ast.expr]):
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        own = {argument.arg for argument in arguments_of(node)}
        node.body = _Put({name: value for name, value in self.given.items() if name not in own}).visit(node.body)
        return node


def _put(expression: ast.expr, given: dict[str, ast.expr]) -> ast.expr:
    if isinstance(expression, ast.Name):
        return given.get(expression.id, expression)
    if not 0 < sum(isinstance(part, ast.Name) and part.id in given for part in ast.walk(expression)) <= MOST_PLACES:
        return expression
    return ast.fix_missing_locations(_Put(given).visit(copy.deepcopy(expression)))


def _last_name(expression: ast.AST | None) -> str:
    """Return `check` for `check` and `workbook.check`."""
    return getattr(expression, "attr", None) or getattr(expression, "id", "")


def _table(value: ast.expr) -> ast.expr | None:
    """Return a list or a dictionary literal, including `dict()` and `list()`."""
    if isinstance(value, ast.Call) and not (value.args or value.keywords):
        empty = {"dict": ast.Dict([], []), "list": ast.List([], ast.Load())}
        return empty.get(_last_name(value.func))
    return value if isinstance(value, (ast.List, ast.Tuple, ast.Dict)) else None


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that an assignment binds, and its value, also of several at once."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        targets, values = getattr(target, "elts", [target]), [statement.value]
        if len(targets) > 1:
            values = getattr(statement.value, "elts", ())
        if len(targets) == len(values):
            yield from ((t.id, v) for t, v in zip(targets, values, strict=True) if isinstance(t, ast.Name))


def _by_name(function: ast.expr) -> ast.expr:
    """Convert `globals()["answer"]` to the name."""
    if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Call):
        key = getattr(function.slice, "value", None)
        if getattr(function.value.func, "id", "") in ("globals", "locals") and isinstance(key, str):
            return ast.copy_location(ast.Name(key, ast.Load()), function)
    return function


def _as_entry(value: ast.expr) -> ast.expr:
    """Prepare a value for a table; anything except a constant becomes a name, so that it is looked up in the table."""
    return value if isinstance(value, ast.Constant) else ast.Name("", ast.Load())


def _lasting(whole: ast.expr, part: ast.expr, *keys: ast.expr) -> ast.expr:
    """Return an entry of a table; in a table with a name, names have their values from when the table was made."""
    return _entry(whole, *keys) if isinstance(whole, ast.Name) and isinstance(part, ast.Name) else part


def _entry(table: ast.expr, *keys: ast.expr) -> ast.expr:
    """Return the expression `table[first][second]`."""
    for key in keys:
        table = ast.fix_missing_locations(ast.copy_location(ast.Subscript(table, key, ast.Load()), table))
    return table


def _is_plain(part: ast.expr) -> bool:
    """Check whether a part of an f-string is a value without a format."""
    return isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
