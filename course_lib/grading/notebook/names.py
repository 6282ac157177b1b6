"""Analyse names in code: where they come from, which are local to a function, which one an expression begins with.

Standard library only: this runs inside the sandbox. Nothing here calls itself, however deep the code is nested.
"""

import ast
from collections.abc import Iterable, Iterator

IMPORTS = (ast.Import, ast.ImportFrom)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_INNER = (*DEFS, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


def origins(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the full names of all names imported anywhere in the nodes: numpy for np, for example."""
    full_names = {}
    for node in (inner for outer in nodes for inner in ast.walk(outer) if isinstance(inner, IMPORTS)):
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                full_names[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            else:
                first = alias.name.split(".")[0]
                full_names[alias.asname or first] = alias.name if alias.asname else first
    return full_names


def root(target: ast.expr) -> str:
    """Return `TABLE` for `TABLE`, `TABLE[3]`, `TABLE.field` and `vars(TABLE)`; empty if no name comes first."""
    while True:
        if isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
            target = target.value
        elif isinstance(target, ast.Call) and getattr(target.func, "id", "") == "vars" and target.args:
            target = target.args[0]
        else:
            return getattr(target, "id", "")


def roots(expression: ast.expr | None) -> set[str]:
    """Return the names whose values an expression passes on: for `(first, *others)` both, for `f(x)` none."""
    parts = getattr(expression, "elts", [expression])
    return {root(part) for part in parts if part is not None} - {""}


def dotted(expression: ast.expr, imported: dict[str, str]) -> str:
    """Return `torch.nn.functional.relu` for `F.relu`; names that are not imported stay, and "?" stands for a value."""
    parts = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    first = imported.get(expression.id, expression.id) if isinstance(expression, ast.Name) else "?"
    return ".".join([first, *reversed(parts)])


def at_once(node: ast.AST, lambdas: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the parts of a statement that run when it runs, and whether each may run more than once.

    Bodies of functions do not, except for lambdas that are handed to something, if these are asked for.
    """
    stack = [(node, False)]
    while stack:
        part, again = stack.pop()
        yield part, again
        if isinstance(part, DEFS):
            inner = [*part.decorator_list, *_defaults(part.args)]
        elif isinstance(part, ast.Lambda) and not lambdas:
            inner = _defaults(part.args)
        elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Lambda):
            inner = [*part.targets, *_defaults(part.value.args)]
        else:
            inner = ast.iter_child_nodes(part)
        stack += [(each, again or isinstance(part, LOOPS)) for each in inner]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return all parameters of a function, including *args and **kwargs."""
    arguments = function.args
    rest = [starred for starred in (arguments.vararg, arguments.kwarg) if starred]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def bound_in(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the local names of a function."""
    bound, elsewhere = {argument.arg for argument in arguments_of(function)}, set()
    queue = list(function.body) if isinstance(function.body, list) else [function.body]
    while queue:
        node = queue.pop()
        bound |= stored(node) if isinstance(node, ast.Name) else set()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            elsewhere |= set(node.names)
        elif isinstance(name := getattr(node, "name", None), str):
            bound.add(name)
        if not isinstance(node, _INNER):
            queue += ast.iter_child_nodes(node)
    return bound - elsewhere


def bound_at_once(node: ast.stmt) -> set[str]:
    """Return names that a statement of the top level may bind when it runs, without those local to an inner scope."""
    bound: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            bound.add(part.id)
        elif isinstance(part, ast.alias):
            bound.add((part.asname or part.name).split(".")[0])
        elif isinstance(name := getattr(part, "name", None) or getattr(part, "rest", None), str):
            bound.add(name)  # of a definition, an `except` or a pattern of `match`
        if isinstance(part, (*DEFS, ast.Lambda)):
            stack += [*getattr(part, "decorator_list", ()), *_defaults(part.args)]
        elif isinstance(part, ast.ClassDef):
            stack += [*part.decorator_list, *part.bases, *part.keywords]
        elif isinstance(part, ast.comprehension):
            stack += [part.iter, *part.ifs]
        else:
            stack += ast.iter_child_nodes(part)
    return bound


def stored(target: ast.AST) -> set[str]:
    """Return names that are bound or deleted in a target."""
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}
