"""What the top level of a notebook binds, changes and needs, statement by statement; nothing is run to find out.

Standard library only: this runs inside the sandbox.
"""

import ast
import contextlib
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, replace

from course_lib.grading.notebook.statements import SIMPLE, TRIES, Statement, is_stub, source_of, split

_AT_ONCE = {"genexpr", "listcomp", "setcomp", "dictcomp", "top"}  # scopes that run where they stand


@dataclass(frozen=True, eq=False, kw_only=True)
class Item:
    """A statement of the top level that may be run, if it is needed.

    Args:
        position: its place among all of them.
        binds: names it gives a value; `replaces`: those of them whose earlier value is lost with certainty.
        changes: names whose value it changes in place.
        eager: names it reads when it runs; late: names that what it defines reads when called.
        star: the module of a `from module import *`.
        stub: it is what the student was given.
    """

    node: ast.stmt
    position: int
    number: int  # of the cell
    statement: Statement
    binds: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    eager: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    star: str = ""
    stub: bool = False


def items(whole: ast.stmt, lines: list[str], cell: Statement, number: int, start: int) -> list[Item]:
    """What of one statement of a cell may run, numbered from `start`.

    Args:
        lines: of the whole cell.
        cell: a statement to take the cell from, and whether annotations are left alone in it.
        number: of the cell.
    """
    runnable = []
    for node in split(whole):
        source = source_of(whole, lines) if node is whole else ast.unparse(node)
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        statement = replace(cell, source=cell.source + source, line=first - bool(cell.source))
        with contextlib.suppress(SyntaxError):  # such as await outside of a function, which only a kernel runs
            runnable.append(item(node, source, statement, start + len(runnable), number))
    return runnable


def item(node: ast.stmt, source: str, statement: Statement, position: int, number: int) -> Item:
    """What a statement binds, changes and reads.

    Raises:
        SyntaxError: when it cannot stand at the top level.
    """
    table = symtable.symtable(source, statement.filename, "exec")
    binds, eager, late = set(), set(), set()
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            binds.add(symbol.get_name())
        if symbol.is_referenced():
            eager.add(symbol.get_name())
    for child in table.get_children():
        _reads(child, eager, late, called=False)
    changes = {root(target) for target in _targets(node) if not isinstance(target, ast.Name)} - {""}
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        changes.add(node.target.id)
    star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    submodule = isinstance(node, ast.Import) and "." in node.names[0].name and not node.names[0].asname
    certain = isinstance(node, SIMPLE) and not isinstance(node, ast.AugAssign) and not submodule
    return Item(
        node=node,
        position=position,
        number=number,
        statement=statement,
        binds=frozenset(binds),
        replaces=frozenset(binds if certain else ()),
        changes=frozenset(changes),
        eager=frozenset(eager),
        late=frozenset(late),
        star=(node.module or ".") if star else "",
        stub=is_stub(node),
    )


def _reads(table: symtable.SymbolTable, eager: set[str], late: set[str], called: bool) -> None:
    """Collect the globals that a scope and those inside it read: at once, or when something is called."""
    kind = str(table.get_type())
    comprehension = kind == "function" and table.get_name() in _AT_ONCE
    called |= kind == "function" and not comprehension
    for symbol in table.get_symbols():
        if symbol.is_global():
            (late if called else eager).add(symbol.get_name())
            if comprehension:  # a generator is run later, and a function may bear such a name
                late.add(symbol.get_name())
    for child in table.get_children():
        _reads(child, eager, late, called)


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    """The single targets of an assignment, in compound statements too."""
    for inner in ast.walk(node) if isinstance(node, (ast.If, *TRIES)) else [node]:
        whole = inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
        stored = (part for target in whole if target for part in ast.walk(target))
        yield from (part for part in stored if isinstance(getattr(part, "ctx", None), ast.Store))


def root(target: ast.expr) -> str:
    """`TABLE` for `TABLE`, `TABLE[3]` and `TABLE.field`; empty for what begins with no name."""
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return getattr(target, "id", "")
