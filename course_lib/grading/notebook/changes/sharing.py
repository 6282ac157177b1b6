"""Find values that a name may share with others, and functions it may stand for: `v = A.view(-1)`, `p = partial(f)`.

The analysis reads the text and prefers too many, as in effects.py. Standard library only: this runs inside the sandbox.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field

from course_lib.grading.notebook.names import LOOPS, origins, root

_TYPES = frozenset(name for name, value in vars(builtins).items() if isinstance(value, type))
# A notebook can use these to bind names that we do not see.
_HIDDEN_BINDINGS = {"exec", "globals", "locals", "vars", "builtins", "__builtins__", "*"}
METHOD = "."
Ways = dict[str, set[str]]
_CONTAINERS = (ast.Tuple, ast.List, ast.Set)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_KEEPS = {"append", "add", "insert", "extend", "update", "setdefault", "put", "register"}  # store an argument
# Functions and methods that return a new value, which shares nothing with their arguments.
_FRESH = re.compile(
    r"len|int|float|str|bool|abs|round|range|sum|min|max|mean|std|var|norm|prod|any|all|repr|format|type|isinstance|id|"
    r"hash|ord|chr|pow|divmod|bytes|item|tolist|clone|copy|deepcopy|numel|dim|size|stat|nelement|(arg)?sort(ed)?|"
    r"arg(min|max)|topk|kthvalue|quantile|median|count\w*|cum(sum|prod)|(zeros|ones|empty|rand|randn|full|randint)(_like)?|"
    r"arange|linspace|eye|randperm|normal|uniform|exp|log\d*p?|sqrt|rsqrt|square|sin|cos|tanh|relu|gelu|silu|sigmoid|"
    r"(log_)?softmax|mm|bmm|matmul|einsum|dot|add|sub|mul|div|where|stack|cat|concatenate|masked_fill|clamp|clip|"
    r"join|split|strip|replace|lower|upper|read|readlines|read_\w+|perf_counter|time|input|open"
)


@dataclass
class Sharing:
    """The values and functions that names share.

    Args:
        values: for a name, the names whose value it may contain or be a part of; functions: those it may stand for.
    """

    values: Ways = field(default_factory=dict)
    functions: Ways = field(default_factory=dict)

    def add(self, parts: Iterable[ast.AST], known: "Known") -> None:
        """Record what the parts of a statement assign to names."""
        for target, value in (pair for part in parts for pair in _given(part)):
            names = set(_handed(value, known.returns))
            handed = {name.removeprefix(METHOD) for name in names}
            values = known.values(name for name in names if not name.startswith(METHOD))
            for name in _bound(target):
                self.values.setdefault(name, set()).update(values - {name})
                self.functions.setdefault(name, set()).update(handed & known.functions)
            if name := root(target):  # a part of it is set, which may be called later
                self.functions.setdefault(name, set()).update(handed & known.functions)

    def called(self, name: str, outer: "Sharing") -> set[str]:
        """Return the functions that a call of a name, or of a part of it, may call."""
        reached = reach({name}, self.values, outer.values)
        return {each for one in reached for ways in (self.functions, outer.functions) for each in ways.get(one, ())}


@dataclass(frozen=True)
class Known:
    """Names that a notebook defines: its functions and classes, those that return their arguments, and values."""

    functions: Set[str]
    returns: Callable[[str], bool]
    values: Callable[[Iterable[str]], set[str]]


def reach(names: Iterable[str], *ways: Ways) -> set[str]:
    """Return the names and all that can be reached from them, in any number of steps."""
    reached = set(names)
    queue = list(reached)
    while queue:
        name = queue.pop()
        fresh = {each for way in ways for each in way.get(name, ())} - reached
        reached |= fresh
        queue += fresh
    return reached


def backwards(ways: Ways) -> Ways:
    """Return the ways with their direction reversed."""
    turned: Ways = {}
    for name, others in ways.items():
        for other in others:
            turned.setdefault(other, set()).add(name)
    return turned


def hands_on(function: ast.AST) -> bool:
    """Check whether a function may return something other than a new value."""
    if isinstance(function, ast.Lambda):
        return any(_handed(function.body, lambda name: True))
    returned = [part.value for part in ast.walk(function) if isinstance(part, (ast.Return, ast.Yield)) and part.value]
    return any(name for value in returned for name in _handed(value, lambda name: True))


def constants(statements: Iterable[ast.stmt]) -> set[str]:
    """Return names that are only bound by plain assignments of numbers and texts, whose values cannot change."""
    plain, other = set(), set()
    for part in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(part, ast.Assign) and _is_constant(part.value):
            plain |= {target.id for target in part.targets if isinstance(target, ast.Name)}
        elif pairs := _given(part):
            other |= {name for target, _ in pairs for name in _bound(target)}
    return plain - other


def builtin_types(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """Return names of Python's own types that the notebook does not bind: `dict`, if there is no `dict = ...`.

    No statement can change such a type, and `dict.fromkeys` returns a new value. A notebook that may bind names in a
    way that we do not see, such as `exec`, has none.
    """
    imported = origins(statements)
    bound, read = set(imported), {full.split(".")[0] for full in imported.values()} | imported.keys()
    for part in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(part, ast.Name):
            (read if isinstance(part.ctx, ast.Load) else bound).add(part.id)
        elif isinstance(part, ast.arg):
            bound.add(part.arg)
        elif isinstance(name := getattr(part, "name", None) or getattr(part, "rest", None), str):
            bound.add(name)  # of a definition, an `except` or a pattern of `match`
    return frozenset() if read & _HIDDEN_BINDINGS else _TYPES - bound


def _is_constant(value: ast.expr) -> bool:
    allowed = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.Tuple, ast.expr_context)
    return all(isinstance(part, allowed) for part in ast.walk(value))


def _given(part: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets to which a part of a statement assigns a value, or parts of one."""
    if isinstance(part, ast.Assign):
        return [(target, part.value) for target in part.targets]
    if isinstance(part, (ast.AnnAssign, ast.NamedExpr)) and part.value is not None:
        return [(part.target, part.value)]
    if isinstance(part, LOOPS) and not isinstance(part, ast.While):
        return [(part.target, part.iter)]
    if isinstance(part, ast.withitem) and part.optional_vars is not None:
        return [(part.optional_vars, part.context_expr)]
    if isinstance(part, ast.Call) and getattr(part.func, "attr", "") in _KEEPS and part.args:
        return [(part.func, ast.Tuple(part.args, ast.Load()))]
    return []


def _bound(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _handed(value: ast.expr, returns: Callable[[str], bool]) -> Iterator[str]:
    """Yield names of values and functions that an expression may pass on. A value computed from others is new.

    The name of an attribute begins with METHOD: it may be a function of the notebook, but no variable of that name.
    """
    stack: list[ast.AST | None] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield METHOD + part.attr if root(part) else ""  # perhaps a method of the notebook
            stack.append(part.value)
        elif isinstance(part, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
            stack.append(part.value)
        elif isinstance(part, _CONTAINERS):
            stack += part.elts
        elif isinstance(part, (ast.Dict, ast.BoolOp)):
            stack += part.values
        elif isinstance(part, ast.IfExp):
            stack += [part.body, part.orelse]
        elif isinstance(part, ast.BinOp):
            stack += [side for side in (part.left, part.right) if isinstance(side, (*_CONTAINERS, ast.BinOp))]
        elif isinstance(part, _COMPREHENSIONS):
            stack += [getattr(part, "elt", None) or part.value, *(each.iter for each in part.generators)]
        elif isinstance(part, ast.Lambda):
            yield from (inner.id for inner in ast.walk(part.body) if isinstance(inner, ast.Name))
        elif isinstance(part, ast.Call):
            name = getattr(part.func, "attr", None) or getattr(part.func, "id", "")
            if not _FRESH.fullmatch(name) and returns(name):
                stack += [part.func, *part.args, *(keyword.value for keyword in part.keywords)]
