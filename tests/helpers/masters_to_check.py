"""The masters as notebooks of exercises and checks alone: `python tests/helpers/masters_to_check.py FOLDER`.

All other cells are those of the students' notebooks (tests/workbook/test_lessons.py compares them), which run whole.
"""

import ast
import symtable
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.workbook import masters
from course_lib.workbook.build import write

MAGICS = ("%", "!")


def to_check(notebook: NotebookNode) -> NotebookNode:
    """A master's exercise and check cells as they are, and above each the imports and definitions that they use."""
    cells, needed = [], set()
    for cell in reversed([cell for cell in notebook.cells if cell.cell_type == "code"]):
        if not (is_exercise(cell) or is_check(cell)):
            cell = nbformat.from_dict(cell | {"source": what_binds(cell.source, needed)})
        if cell.source:
            needed |= read(cell.source)
            cells.append(cell)
    return nbformat.from_dict(notebook | {"cells": cells[::-1]})


def is_exercise(cell: NotebookNode) -> bool:
    return "exercise" in cell.metadata


def is_check(cell: NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def what_binds(source: str, needed: set[str]) -> str:
    """Of a cell, the statements that bind a needed name, and those that these need in their turn."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(MAGICS)]
    kept, needed = [], set(needed)
    for statement in map(ast.unparse, reversed(ast.parse("\n".join(lines)).body)):
        if bound(statement) & needed:
            needed |= read(statement)
            kept.append(statement)
    return "\n".join(kept[::-1])


def read(source: str) -> set[str]:
    """Names of the notebook that a piece of code reads, also inside its functions; not their arguments and locals."""

    def inside(table: symtable.SymbolTable) -> set[str]:
        top = table.get_type() == "module"
        own = {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
        return own.union(*map(inside, table.get_children()))

    return inside(symtable.symtable(source, "cell", "exec"))


def bound(source: str) -> set[str]:
    """Names that a piece of code binds in the notebook: assigned, imported, or defined."""
    table = symtable.symtable(source, "cell", "exec")
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def main(folder: Path) -> None:
    """Write them all into the folder, and say how many cells are left of how many."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ipynb"):
        old.unlink()
    for master in masters.masters():
        whole = masters.with_solutions(master)
        reduced = to_check(whole)
        write(folder / f"{master.stem}.ipynb", masters.as_text(reduced))
        n_code = sum(cell.cell_type == "code" for cell in whole.cells)
        n_checks = sum(is_check(cell) for cell in reduced.cells)
        print(f"{master.stem}: {len(reduced.cells)} of {n_code} cells, {n_checks} checks")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
