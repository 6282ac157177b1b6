"""Statements of a notebook's top level: which of them may run, and their text.

Standard library only: this runs inside the sandbox.
"""

import ast
import linecache
from dataclasses import dataclass, field
from types import CodeType

FUTURE = "from __future__ import annotations\n"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
SIMPLE = (*_DEFINITIONS, *_IMPORTS, ast.Assign, ast.AnnAssign, ast.AugAssign)
TRIES = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))


@dataclass(frozen=True)
class Statement:
    """One statement to run. `line` is that of its first line in its cell, `cell` the text of the whole cell."""

    source: str
    filename: str
    line: int = 1
    cell: str = field(default="", repr=False)

    def compiled(self) -> CodeType:
        """Code whose tracebacks, and `inspect.getsource`, show the cell's own lines."""
        if self.cell and linecache.cache.get(self.filename, (0,))[0] != len(self.cell):
            lines = [line + "\n" for line in self.cell.split("\n")]
            linecache.cache[self.filename] = (len(self.cell), None, lines, self.filename)
        tree = ast.increment_lineno(ast.parse(self.source), self.line - 1)
        return compile(tree, self.filename, "exec", dont_inherit=True)


def source_of(node: ast.stmt, lines: list[str]) -> str:
    """The text of a statement, decorators included, without what shares its lines."""
    if getattr(node, "decorator_list", []):
        first, column = min(decorator.lineno for decorator in node.decorator_list), 0
    else:
        first, column = node.lineno, node.col_offset
    part = lines[first - 1 : node.end_lineno]
    part[-1] = part[-1].encode()[: node.end_col_offset].decode()  # columns are counted in bytes
    part[0] = part[0].encode()[column:].decode()
    return "\n".join(part)


def split(node: ast.stmt) -> list[ast.stmt]:
    """A statement as the ones that may run: one an import, so that a package that is not there costs only itself."""
    if isinstance(node, ast.Import) and len(node.names) > 1:
        return [ast.copy_location(ast.Import([alias]), node) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and len(node.names) > 1:
        return [ast.copy_location(ast.ImportFrom(node.module, [alias], node.level), node) for alias in node.names]
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return []
    if isinstance(node, (*SIMPLE, *([ast.TypeAlias] if hasattr(ast, "TypeAlias") else []))):
        return [node]
    if isinstance(node, ast.With):  # not entered, for that may be an experiment; nor is what is measured in it
        return [part for inner in node.body for part in split(inner) if isinstance(part, (*_DEFINITIONS, *_IMPORTS))]
    if isinstance(node, (ast.If, *TRIES)) and (kept := pruned(node)) is not None:
        return [kept]
    return []


def pruned(node: ast.stmt) -> ast.stmt | None:
    """An `if` or `try` with nothing but imports, definitions and assignments left; None when that leaves nothing."""
    holds = False
    copy = type(node)(**dict(ast.iter_fields(node)))
    for name in ("body", "orelse", "finalbody"):
        if statements := getattr(node, name, []):
            left = [part for statement in statements for part in split(statement)]
            holds |= bool(left)
            setattr(copy, name, left or ([ast.Pass()] if name == "body" else []))
    if handlers := getattr(node, "handlers", []):
        left = [[part for statement in handler.body for part in split(statement)] for handler in handlers]
        holds |= any(left)
        copy.handlers = [
            ast.ExceptHandler(handler.type, handler.name, body or [ast.Pass()])
            for handler, body in zip(handlers, left, strict=True)
        ]
    return ast.fix_missing_locations(ast.copy_location(copy, node)) if holds else None


def is_stub(node: ast.AST) -> bool:
    """Whether a definition is what the student was given: it raises NotImplementedError and returns nothing."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if any(isinstance(inner, (ast.Return, ast.Yield, ast.YieldFrom)) for inner in ast.walk(node)):
        return False
    return any(isinstance(statement, ast.Raise) and _says_not_implemented(statement.exc) for statement in node.body)


def _says_not_implemented(raised: ast.expr | None) -> bool:
    raised = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
