"""Split the top level of a notebook into statements: their text, and the parts of them that may run.

Standard library only: this runs inside the sandbox.
"""

import ast
import linecache
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from course_lib.grading.notebook.names import DEFS, IMPORTS

FUTURE = "from __future__ import annotations\n"
DEFINITIONS = (*DEFS, ast.ClassDef)
SIMPLE = (*DEFINITIONS, *IMPORTS, ast.Assign, ast.AnnAssign, ast.AugAssign)
TRIES = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))
WITHS = (ast.With, ast.AsyncWith)
_BLOCKS = (ast.If, *TRIES, *WITHS)


@dataclass(frozen=True)
class Statement:
    """One statement to run. `line` is the number of its first line in its cell, `cell` the text of the whole cell."""

    source: str
    filename: str
    line: int = 1
    cell: str = field(default="", repr=False)

    def compiled(self) -> CodeType:
        """Compile it so that tracebacks and `inspect.getsource` show the cell's lines; as a coroutine if it awaits."""
        if self.cell and linecache.cache.get(self.filename, (0,))[0] != len(self.cell):
            lines = [line + "\n" for line in self.cell.split("\n")]
            linecache.cache[self.filename] = (len(self.cell), None, lines, self.filename)
        tree = ast.increment_lineno(ast.parse(self.source), self.line - 1)
        return compile(tree, self.filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


class Judge(ABC):
    """Decide which statements may run, after `if`, `try` and `with` are split."""

    @abstractmethod
    def reason(self, node: ast.stmt) -> str:
        """Explain why it is never run; "" if it may run."""

    @abstractmethod
    def only_writes(self, node: ast.stmt) -> bool:
        """Check whether it changes only files on the disk."""

    @abstractmethod
    def acts(self, node: ast.stmt) -> bool:
        """Check whether it binds or changes a name, so that something may need it."""


def source_of(node: ast.stmt, lines: list[str]) -> str:
    """Return the text of a statement with its decorators, without other code on the same lines."""
    if getattr(node, "decorator_list", []):
        first, column = min(decorator.lineno for decorator in node.decorator_list), 0
    else:
        first, column = node.lineno, node.col_offset
    part = lines[first - 1 : node.end_lineno]
    part[-1] = part[-1].encode()[: node.end_col_offset].decode()  # columns count bytes
    part[0] = part[0].encode()[column:].decode()
    return "\n".join(part)


def leaves(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements in an `if`, `try` or `with`, and in those inside it; a loop is one statement."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, _BLOCKS):
            stack += [inner for block in _blocks(part) for inner in block]
        else:
            yield part


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    handlers = [handler.body for handler in getattr(node, "handlers", [])]
    return [node.body, *handlers, getattr(node, "orelse", []), getattr(node, "finalbody", [])]


def head(node: ast.stmt) -> ast.stmt | None:
    """Return the test of an `if` or the context of a `with` as a statement; None if there is none."""
    if isinstance(node, WITHS):
        return ast.copy_location(ast.Expr(ast.Tuple([item.context_expr for item in node.items], ast.Load())), node)
    return ast.copy_location(ast.Expr(node.test), node) if isinstance(node, ast.If) else None


def split(node: ast.stmt, judge: Judge) -> list[ast.stmt]:
    """Split a statement into parts that may run: one per import, so that a missing package affects only itself."""
    if isinstance(node, ast.Import) and len(node.names) > 1:
        return [ast.copy_location(ast.Import([alias]), node) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and len(node.names) > 1:
        return [ast.copy_location(ast.ImportFrom(node.module, [alias], node.level), node) for alias in node.names]
    if isinstance(node, ast.Delete):
        parts = [ast.copy_location(ast.Delete([target]), node) for target in _targets(node)]
        return [part for part in parts if judge.acts(part) and not judge.reason(part)]
    if isinstance(node, WITHS):
        return _entered(node, judge)
    if isinstance(node, (ast.If, *TRIES)):
        kept = None if judge.reason(node) else _pruned(node, judge)
        return [kept] if kept is not None else []
    return [node] if judge.acts(node) and not judge.reason(node) else []


def _targets(node: ast.Delete) -> list[ast.expr]:
    """Return the targets of a `del` one by one: `del a, (b, c[0])` has three."""
    targets = list(node.targets)
    while any(isinstance(target, (ast.Tuple, ast.List)) for target in targets):
        targets = [inner for target in targets for inner in getattr(target, "elts", [target])]
    return targets


def _entered(node: ast.With | ast.AsyncWith, judge: Judge) -> list[ast.stmt]:
    """Return a `with` that sets something; for any other, or one with an experiment, its definitions and imports."""
    parts = list(leaves(node))
    why = judge.reason(node) or any(judge.reason(part) for part in parts)
    if not why and judge.acts(head(node)) and not any(isinstance(p, (*DEFINITIONS, *IMPORTS)) for p in parts):
        return [node]  # entering it has an effect, such as opening a file
    sets = [part for part in parts if not isinstance(part, (*DEFINITIONS, *IMPORTS)) and judge.acts(part)]
    if sets and not why:
        return [kept] if (kept := _pruned(node, judge)) is not None else []
    found = [part for inner in node.body for part in split(inner, judge)]
    return [part for part in found if isinstance(part, (*DEFINITIONS, *IMPORTS))]


def _pruned(node: ast.stmt, judge: Judge) -> ast.stmt | None:
    """Remove experiments, plots and prints from an `if`, `try` or `with`; return None if nothing remains."""
    holds, same = False, True
    copy = type(node)(**dict(ast.iter_fields(node)))
    for name in ("body", "orelse", "finalbody"):
        if statements := getattr(node, name, []):
            # A statement in a `try` may be there for the error that it raises.
            tried = name == "body" and isinstance(node, TRIES)
            left = _left(statements, judge, tried)
            holds |= any(judge.acts(part) for part in left)
            same &= left == statements
            needed = name == "body" or (name == "finalbody" and not node.handlers)  # or it would not parse
            setattr(copy, name, left or ([ast.Pass()] if needed else []))
    if handlers := getattr(node, "handlers", []):
        left = [_left(handler.body, judge) for handler in handlers]
        holds |= any(left)
        same &= left == [handler.body for handler in handlers]
        copy.handlers = [
            ast.ExceptHandler(handler.type, handler.name, body or [ast.Pass()])
            for handler, body in zip(handlers, left, strict=True)
        ]
    if same and holds:
        return node
    return ast.fix_missing_locations(ast.copy_location(copy, node)) if holds else None


def _left(statements: list[ast.stmt], judge: Judge, tried: bool = False) -> list[ast.stmt]:
    left = []
    for statement in statements:
        kept = tried and not isinstance(statement, (*IMPORTS, *_BLOCKS)) and not judge.reason(statement)
        parts = [statement] if kept else split(statement, judge)
        left += [_tried(part) if judge.only_writes(part) and not tried else part for part in parts]
    return left


def _tried(node: ast.stmt) -> ast.stmt:
    """Wrap a statement that only writes to the disk, so that its failure does not stop other code."""
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
    return ast.copy_location(ast.Try([node], [handler], [], []), node)


def is_stub(node: ast.AST) -> bool:
    """Check whether a definition is the one given to students: it raises NotImplementedError and returns nothing."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if any(isinstance(inner, (ast.Return, ast.Yield, ast.YieldFrom)) for inner in ast.walk(node)):
        return False
    return any(isinstance(statement, ast.Raise) and _says_not_implemented(statement.exc) for statement in node.body)


def _says_not_implemented(raised: ast.expr | None) -> bool:
    raised = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
