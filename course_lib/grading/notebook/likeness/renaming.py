"""Names taken out of code: those that a student chose become v0, v1, ... in the order in which they appear.

Standard library only: this runs inside the sandbox.
"""

import ast
import itertools
from collections.abc import Iterable

from course_lib.grading.notebook.names import DEFS, arguments_of, bound_in, stored


class Rename(ast.NodeVisitor):
    """Renames in place. A name is known by the scope that binds it, so that what it was called leaves no trace."""

    def __init__(self, imported: dict[str, str], bound: Iterable[str], nodes: Iterable[ast.stmt]):
        self.imported, self.counter = imported, itertools.count()
        self.numbers: dict[tuple[int, str], str] = {}
        self.helpers = {node.name: node for node in nodes if isinstance(node, DEFS)}
        self.scopes = [(0, set(bound) - imported.keys())]

    def called(self, name: str) -> str:
        """v7 for the student's own, the full name for what is imported, itself for any other."""
        scope = next((scope for scope, names in reversed(self.scopes) if name in names), None)
        return self.imported.get(name, name) if scope is None else self.number(scope, name)

    def number(self, scope: int, name: str) -> str:
        if (scope, name) not in self.numbers:
            self.numbers[scope, name] = f"v{next(self.counter)}"
        return self.numbers[scope, name]

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self.called(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        node.arg = self.called(node.arg)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        node.names = [self.called(name) for name in node.names]

    visit_Nonlocal = visit_Global

    def _named(self, node: ast.AST) -> None:
        if getattr(node, "name", None):
            node.name = self.called(node.name)
        self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _named

    def visit_Call(self, node: ast.Call) -> None:
        """Keywords of the student's own helpers are the names of their parameters."""
        helper = self.helpers.get(node.func.id) if isinstance(node.func, ast.Name) else None
        own = {argument.arg for argument in ast.walk(helper.args) if isinstance(argument, ast.arg)} if helper else set()
        self.generic_visit(node)
        for keyword in node.keywords:
            if (id(helper), keyword.arg) in self.numbers or keyword.arg in own:
                keyword.arg = self.number(id(helper), keyword.arg)

    def visit_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, method: bool = False
    ) -> None:
        for outer in (*getattr(node, "decorator_list", ()), *node.args.defaults, *node.args.kw_defaults):
            if outer is not None:
                self.visit(outer)
        if hasattr(node, "name") and not method:
            node.name = self.called(node.name)
        self.scopes.append((id(node), bound_in(node)))
        for inner in (*arguments_of(node), *(node.body if isinstance(node.body, list) else [node.body])):
            self.visit(inner)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Methods and attributes keep their names, as those of any object do."""
        node.name = self.called(node.name)
        for outer in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(outer)
        for inner in node.body:
            self.visit_FunctionDef(inner, method=True) if isinstance(inner, DEFS) else self.visit(inner)

    def _comprehension(self, node: ast.AST) -> None:
        self.scopes.append((id(node), {name for clause in node.generators for name in stored(clause.target)}))
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension
