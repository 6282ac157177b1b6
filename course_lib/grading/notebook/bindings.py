"""Find what the top level of a notebook binds, changes and needs, statement by statement, without running it.

Standard library only: this runs inside the sandbox.
"""

import ast
import symtable
from dataclasses import dataclass

from course_lib.grading.notebook.disk import named_files
from course_lib.grading.notebook.names import IMPORTS, at_once, bound_at_once
from course_lib.grading.notebook.statements import DEFINITIONS, SIMPLE, Statement, is_stub

ANYTHING = "?"  # the `star` of a statement that may bind any name
_AT_ONCE = {"genexpr", "listcomp", "setcomp", "dictcomp", "top"}  # scopes that run immediately


@dataclass(frozen=True)
class Facts:
    """The names that a statement binds, reads when it runs, and reads when a function that it defines is called.

    Args:
        star: the module of a `from module import *`, or ANYTHING for an `exec` of what is not known.
        files: files that it names, and may write.
        deletes: names that it may delete.
    """

    binds: frozenset[str] = frozenset()
    eager: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    star: str = ""
    files: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, kw_only=True)
class Item:
    """A statement of the top level that may be run if it is needed.

    Args:
        position: its index among all items.
        binds: names that it binds; `replaces`: those of them whose earlier value is certainly lost.
        changes: names whose value it changes in place, or may delete.
        deletes: names that it may delete; a `del` replaces them, like an assignment.
        eager: names it reads when it runs; late: names that what it defines reads when called.
        star: as in Facts. stub: whether it is the code given to students.
        everywhere: whether it changes what every exercise uses, such as torch itself.
    """

    node: ast.stmt
    position: int
    number: int  # number of the cell
    statement: Statement
    binds: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    eager: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    star: str = ""
    stub: bool = False
    everywhere: bool = False
    deletes: frozenset[str] = frozenset()

    def ends(self, name: str) -> bool:
        """Check whether the name is certainly unbound after it."""
        return name in self.deletes & self.replaces


def item(
    node: ast.stmt,
    facts: Facts,
    statement: Statement,
    *,
    position: int,
    number: int,
    changes: frozenset[str] = frozenset(),
    everywhere: bool = False,
) -> Item:
    """Make the item of a statement from its facts."""
    submodule = isinstance(node, ast.Import) and "." in node.names[0].name and not node.names[0].asname
    certain = isinstance(node, SIMPLE) and not isinstance(node, ast.AugAssign) and not submodule
    surely_deleted = facts.deletes if isinstance(node, ast.Delete) else frozenset()
    return Item(
        node=node,
        position=position,
        number=number,
        statement=statement,
        binds=facts.binds,
        replaces=(facts.binds if certain else frozenset()) | surely_deleted,
        changes=changes | facts.files | (facts.deletes - surely_deleted),
        eager=facts.eager | facts.files,
        late=facts.late,
        star=facts.star,
        stub=is_stub(node),
        everywhere=everywhere,
        deletes=facts.deletes,
    )


def facts(node: ast.stmt, source: str) -> Facts:
    """Find what a statement binds and reads.

    Raises:
        SyntaxError: if it is not allowed at the top level.
    """
    if any(isinstance(part, (ast.Await, ast.AsyncFor, ast.AsyncWith)) for part, _ in at_once(node)):
        source = ast.unparse(_WithoutAwait().visit(ast.parse(source)))  # which symtable does not accept here
    table = symtable.symtable(source, "cell", "exec")
    stored, eager, late = set(), set(), set()
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():  # or deleted
            stored.add(symbol.get_name())
        if symbol.is_referenced():
            eager.add(symbol.get_name())
    binds = stored & bound_at_once(node)
    for child in table.get_children():
        binds |= _binds_outside(child)
        _reads(child, eager, late, called=False)
    # `count += 1` reads the old value, which symtable does not report.
    added = (part.target for part, _ in at_once(node) if isinstance(part, ast.AugAssign))
    eager |= {target.id for target in added if isinstance(target, ast.Name)}
    deletes = _deleted(node, stored)
    star = (node.module or ".") if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" else ""
    for part, _ in at_once(node):
        made, unknown = _made(part)
        binds |= made
        star = star or (ANYTHING if unknown else "")
    named = frozenset(named_files(node))
    if isinstance(node, DEFINITIONS):
        return Facts(frozenset(binds), frozenset(eager), frozenset(late) | named, star)
    if isinstance(node, IMPORTS):
        return Facts(frozenset(binds), frozenset(eager) | named, frozenset(late), star)
    return Facts(frozenset(binds), frozenset(eager), frozenset(late), star, named, frozenset(deletes - binds))


def _binds_outside(table: symtable.SymbolTable) -> set[str]:
    """Return names of the top level that a comprehension binds by `:=`, or a class by `global`."""
    if str(table.get_type()) == "function" and table.get_name() not in _AT_ONCE:
        return set()
    own = {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return own.union(*(_binds_outside(child) for child in table.get_children()))


def _deleted(node: ast.stmt, stored: set[str]) -> set[str]:
    """Return names that a statement may delete: by `del name`, or out of `globals()`."""
    names: set[str] = set()
    for part, _ in at_once(node) if not isinstance(node, DEFINITIONS) else ():
        key = None
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del):
            names |= {part.id} & stored
        elif isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Del) and _is_globals(part.value):
            key = part.slice
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _is_globals(part.func.value):
            key = part.args[0] if part.func.attr in ("pop", "__delitem__") and part.args else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            names.add(key.value)
    return names


def _reads(table: symtable.SymbolTable, eager: set[str], late: set[str], called: bool) -> None:
    """Collect the globals that a scope and its inner scopes read: immediately, or when something is called."""
    kind = str(table.get_type())
    comprehension = kind == "function" and table.get_name() in _AT_ONCE
    called |= kind == "function" and not comprehension
    for symbol in table.get_symbols():
        if symbol.is_global() and (called or symbol.is_referenced()):
            (late if called else eager).add(symbol.get_name())
            if comprehension:  # a generator runs later, and a function may have such a name
                late.add(symbol.get_name())
    for child in table.get_children():
        _reads(child, eager, late, called)


class _WithoutAwait(ast.NodeTransformer):
    """Remove `await` from a statement and keep its names; functions stay unchanged."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self.visit(node.value)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return ast.copy_location(ast.For(**dict(ast.iter_fields(self.generic_visit(node)))), node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return ast.copy_location(ast.With(**dict(ast.iter_fields(self.generic_visit(node)))), node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.is_async = 0
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node


def _made(part: ast.AST) -> tuple[set[str], bool]:
    """Return names bound by `exec("...")` or `globals()["..."] = ...`, and whether there may be others."""
    if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store) and _is_globals(part.value):
        key = getattr(part.slice, "value", None)
        return ({key}, False) if isinstance(key, str) else (set(), True)
    if not isinstance(part, ast.Call):
        return set(), False
    if isinstance(part.func, ast.Attribute) and _is_globals(part.func.value) and part.func.attr == "update":
        return {word.arg for word in part.keywords if word.arg}, bool(part.args)
    if getattr(part.func, "id", "") != "exec" or not part.args or len(part.args) > 1:
        return set(), False
    text = getattr(part.args[0], "value", None)
    if not isinstance(text, str):
        return set(), True
    try:
        table = symtable.symtable(text, "exec", "exec")
    except (SyntaxError, ValueError):
        return set(), False
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}, False


def _is_globals(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("globals", "locals") and not value.args
