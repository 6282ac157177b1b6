"""Find the functions of course_lib that an answer calls: a signal for a human, never a penalty.

Standard library only: this runs inside the sandbox.
"""

import ast
import re
from collections.abc import Iterator

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.names import DEFS, IMPORTS, origins

MOST, LONGEST = 50, 200  # number of names reported, and characters of each
_OURS = re.compile(r"course_lib(\.\w+)*")
_HARMLESS = re.compile(r"course_lib\.workbook(\.checks?)?(\.(check|check_all|hint|mine|show_progress))?")
# Syntax around a call that adds no code of the student's own.
_PASSIVE = (
    *(ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Starred, ast.keyword, ast.Tuple, ast.List),
    *(
        ast.Lambda,
        ast.arguments,
        ast.arg,
        ast.expr_context,
        ast.Return,
        ast.Assign,
        ast.Expr,
        ast.Pass,
        ast.alias,
        *IMPORTS,
    ),
)


def uses(items: list[Item]) -> tuple[str, ...]:
    """Return full names of course_lib that the statements use, except imports and `check`."""
    known = origins(item.node for item in items)
    stars = [item.star for item in items if _OURS.fullmatch(item.star)]
    bound = {name for item in items for name in item.binds}
    used: dict[str, None] = {}
    for item in items:
        if not isinstance(item.node, IMPORTS):
            locals_ = origins([item.node])
            free = item.eager | item.late | locals_.keys()
            loose = {name: f"{star}.{name}" for star in stars for name in free - bound - known.keys()}
            names = {name: full for name, full in (known | loose | locals_).items() if name in free}
            used |= dict.fromkeys(_named(item.node, names))
    return tuple(sorted(name[:LONGEST] for name in used if not _HARMLESS.fullmatch(name)))[:MOST]


def _named(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    """Yield dotted names of course_lib in a statement, the longest of each chain, and those in calls as text."""
    inner = {id(attribute.value) for attribute in ast.walk(node) if isinstance(attribute, ast.Attribute)}
    for part in ast.walk(node):
        if isinstance(part, (ast.Name, ast.Attribute)) and id(part) not in inner:
            full = _full(part, names)
            if _OURS.fullmatch(full) and "." in full:
                yield full
        elif isinstance(part, ast.Call):  # importlib.import_module("course_lib.pruning")
            text = [a.value for a in part.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from (value for value in text if _OURS.fullmatch(value))


def _full(node: ast.expr, names: dict[str, str]) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([names.get(node.id, ""), *reversed(parts)]) if isinstance(node, ast.Name) else ""


def only_calls(items: list[Item], chosen: Item) -> bool:
    """Check whether the chosen function, and the helpers it calls, only pass their arguments to course_lib."""
    known = origins(item.node for item in items)
    ours = {name for name, full in known.items() if _OURS.match(full) and not _HARMLESS.fullmatch(full)}
    if chosen.binds & ours:  # imported under the name of the answer
        return True
    for _ in range(len(items)):
        more = {name for item in items for name in item.binds - ours if _passes_on(item.node, ours)}
        if not more:
            return False
        ours |= more
        if chosen.binds & ours:
            return True
    return False


def _passes_on(node: ast.stmt, ours: set[str]) -> bool:
    """Check whether a definition calls, or is, something in `ours`, and does nothing else."""
    local = ours | {name for name, full in origins([node]).items() if _OURS.match(full)}
    if isinstance(node, DEFS):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    elif isinstance(node, ast.Assign) and not isinstance(node.value, (ast.Name, ast.Attribute, ast.Call, ast.Lambda)):
        return False
    else:
        body = [node]
    if not all(isinstance(part, _PASSIVE) for statement in body for part in ast.walk(statement)):
        return False
    called = False
    for statement in body:
        calls = [call for call in ast.walk(statement) if isinstance(call, ast.Call)]
        if not all(_root(_called(call)) in local for call in calls):
            return False
        value = getattr(statement, "value", None)
        called |= bool(calls) or (not isinstance(node, DEFS) and value is not None and _root(value) in local)
        if isinstance(statement, ast.Assign) and calls:  # an object returned by course_lib may be called too
            local = local | {name.id for target in statement.targets for name in ast.walk(target) if _is_name(name)}
    return called


def _called(call: ast.Call) -> ast.expr:
    """Return the called function; for `partial(f, 2)` that is f."""
    is_partial = call.args and (getattr(call.func, "attr", None) or getattr(call.func, "id", "")) == "partial"
    return call.args[0] if is_partial else call.func


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
