"""Normalise an answer's code, without names, comments and formatting, to compare it with other submissions.

A student's own names become f0, f1, ... where they are defined at the top level, and v0, v1, ... inside of that, in the
order in which they appear. Imported names become full names, and constants stay. Standard library only: this
runs inside the sandbox.
"""

import ast
import collections
import hashlib
from collections.abc import Iterator, Set

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.names import IMPORTS, origins

LONGEST = 20_000  # characters; longer code is replaced by a digest
_NAMES = ("id", "arg", "name", "rest")  # the fields in which Python's nodes keep a name


def code(items: list[Item], chosen: Item) -> str:
    """Return the normalised source of the chosen definition and of the code it needs, in the order of use."""
    imported = origins(item.node for item in items)
    bound: dict[str, list[Item]] = {}
    for item in items:
        for name in item.binds | item.changes if not isinstance(item.node, IMPORTS) else ():
            bound.setdefault(name, []).append(item)
    top, called = bound.keys() - imported.keys(), {}
    queue, seen, parts = collections.deque([chosen] if chosen.binds & bound.keys() else []), {chosen}, []
    while queue:
        item = queue.popleft()
        tree = ast.parse(item.statement.source).body[-1]
        bare = _Bare(tree, item.binds, top, imported, called)
        parts.append(ast.unparse(ast.fix_missing_locations(bare.visit(tree) or ast.Pass())))
        for other in [needed for name in bare.named for needed in bound.pop(name, ())]:
            if other not in seen:
                seen.add(other)
                queue.append(other)
    whole = "\n".join(parts)
    if len(whole) > LONGEST:
        whole = f"{whole[:LONGEST]}\n# {hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()}"
    return whole


class _Bare(ast.NodeTransformer):
    """Normalise one definition: remove names, and code without effect, such as texts, annotations, inner imports.

    A local name, v0, v1, ..., stands for one thing in all of the definition, also where Python has two scopes for it.

    Args:
        binds: names that the definition defines. top: names that all definitions of the answer define.
        called: their new names, f0, f1, ...; more are added as they appear.
    """

    def __init__(
        self, tree: ast.stmt, binds: Set[str], top: Set[str], imported: dict[str, str], called: dict[str, str]
    ):
        self.local = {name for node in ast.walk(tree) for name in _bound_by(node)} - binds
        self.top, self.imported, self.global_names = top, imported, called
        self.local_names: dict[str, str] = {}
        self.named: list[str] = []  # names of the top level

    def called(self, name: str) -> str:
        """Return the new name: f0, v0, ... for the student's own names, the full name for an import, else the same."""
        if name in self.local:
            return self.number(name)
        if name in self.top:
            self.named.append(name)
            return self.global_names.setdefault(name, f"f{len(self.global_names)}")
        return self.imported.get(name, name)

    def number(self, name: str) -> str:
        return self.local_names.setdefault(name, f"v{len(self.local_names)}")

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in _NAMES:
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, self.called(name))
        for field in ("returns", "annotation"):
            if hasattr(node, field):
                setattr(node, field, None)
        if hasattr(node, "type_params"):
            node.type_params = []
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]
        return node

    def visit_Pass(self, node: ast.Pass | ast.Import | ast.ImportFrom) -> None:
        """Remove a statement that has no effect."""

    visit_Import = visit_ImportFrom = visit_Pass

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return self.visit(ast.Assign([node.target], node.value)) if node.value else None

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self.called(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rename keywords of the student's own functions, whose names the student chose; keep those of others."""
        mine = isinstance(node.func, ast.Name) and node.func.id in self.local | self.top
        self.generic_visit(node)
        for keyword in node.keywords:
            if mine and keyword.arg:
                keyword.arg = self.number(keyword.arg)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.value = self.visit(node.value)
        return node


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds: variables, arguments, functions, classes and patterns."""
    if not isinstance(node, ast.keyword | ast.alias) and not isinstance(getattr(node, "ctx", None), ast.Load):
        yield from (name for field in _NAMES if isinstance(name := getattr(node, field, None), str))
