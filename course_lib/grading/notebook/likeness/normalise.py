"""The code of an answer without names, comments and formatting, to be compared with other submissions' code.

Names that the student chose become v0, v1, ... in the order in which they appear; what is imported is called by its
full name, and constants stay. Standard library only: this runs inside the sandbox.
"""

import ast
import collections
import hashlib
from collections.abc import Iterator

from course_lib.grading.notebook.bindings import Item
from course_lib.grading.notebook.likeness.renaming import Rename
from course_lib.grading.notebook.names import IMPORTS, origins

LONGEST = 20_000  # characters; of longer code a digest stands for the rest


def code(items: list[Item], chosen: Item) -> str:
    """Normalised source of the chosen definition, followed by what it needs in the order in which it is named."""
    bare = {item: _Bare().visit(ast.parse(item.statement.source).body[-1]) for item in items if not _is_import(item)}
    rename = Rename(origins(i.node for i in items), {n for i in bare for n in i.binds}, bare.values())
    parts = []
    for item in _reached(bare, chosen):
        rename.visit(bare[item])
        parts.append(ast.unparse(ast.fix_missing_locations(bare[item])))
    whole = "\n".join(parts)
    if len(whole) > LONGEST:
        whole = f"{whole[:LONGEST]}\n# {hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()}"
    return whole


def _is_import(item: Item) -> bool:
    return isinstance(item.node, IMPORTS)


def _reached(bare: dict[Item, ast.stmt], chosen: Item) -> Iterator[Item]:
    """Definitions in the order in which they are named, the chosen one first; where they stand does not matter."""
    bound: dict[str, list[Item]] = {}
    for item in bare:
        for name in item.binds | item.changes:
            bound.setdefault(name, []).append(item)
    queue, seen = collections.deque([chosen] if chosen in bare else []), {chosen}
    while queue:
        item = queue.popleft()
        named = [node.id for node in ast.walk(bare[item]) if isinstance(node, ast.Name)]
        yield item
        for other in [needed for name in named for needed in bound.pop(name, ())]:
            if other not in seen:
                seen.add(other)
                queue.append(other)


class _Bare(ast.NodeTransformer):
    """Takes out annotations, docstrings and other text that does nothing, and imports inside of functions."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                kept = [statement for statement in statements if not self._does_nothing(statement)]
                setattr(node, name, kept or ([ast.Pass()] if name == "body" else []))
        for name in ("returns", "annotation"):
            if hasattr(node, name):
                setattr(node, name, None)
        if hasattr(node, "type_params"):
            node.type_params = []
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        plain = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return self.generic_visit(ast.copy_location(plain, node))

    @staticmethod
    def _does_nothing(node: ast.AST) -> bool:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return text or isinstance(node, (ast.Pass, *IMPORTS))
