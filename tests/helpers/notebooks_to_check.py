"""The notebooks that nbval runs: `python tests/helpers/notebooks_to_check.py FOLDER` writes FOLDER/students, /masters.

All of them run together, so that no processor waits for the last of the students'; those with most cells come first.
The students' are whole, and a student types into them what the page tells a student to type. The masters are
exercises, checks and what calls an answer (`mine`); all their other cells are those of the students' notebooks
(tests/workbook/test_lessons.py compares them).
"""

import ast
import re
import symtable
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib.workbook import masters
from course_lib.workbook.build import write

MAGICS = ("%", "!")
TO_TYPE = re.compile(r"`((?:hint|show_progress)\([^`]*\))`")


def with_what_is_typed(notebook: NotebookNode) -> NotebookNode:
    """A student's notebook, and in new cells the calls that its text names, and the hint that each check offers."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        typed = TO_TYPE.findall(cell.source) if cell.cell_type == "markdown" else []
        if is_check(cell):
            typed = [f"hint({ast.parse(cell.source).body[0].value.args[0].value!r})"]
        cells += [new_code_cell(call, id=f"typed-{len(cells)}-{i}") for i, call in enumerate(typed)]
    return nbformat.from_dict(notebook | {"cells": cells})


def to_check(notebook: NotebookNode) -> NotebookNode:
    """A master's cells that call an answer as they are, and above each the imports and definitions that they use."""
    cells, needed = [], set()
    for cell in reversed([cell for cell in notebook.cells if cell.cell_type == "code"]):
        if not calls_an_answer(cell):
            cell = nbformat.from_dict(cell | {"source": what_binds(cell.source, needed)})
        if cell.source:
            needed |= read(cell.source)
            cells.append(cell)
    return nbformat.from_dict(notebook | {"cells": cells[::-1]})


def strict(notebook: NotebookNode) -> NotebookNode:
    """The same notebook, in which a check that is not right raises."""
    first = new_code_cell('import os\n\nos.environ["COURSE_STRICT"] = "1"', id="strict")
    return nbformat.from_dict(notebook | {"cells": [first, *notebook.cells]})


def is_exercise(cell: NotebookNode) -> bool:
    return "exercise" in cell.metadata


def is_check(cell: NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def is_use(cell: NotebookNode) -> bool:
    """Whether it goes on with an answer: `mine("wanda.score", wanda_score)`."""
    return cell.cell_type == "code" and "mine" in read(without_magics(cell.source))


def calls_an_answer(cell: NotebookNode) -> bool:
    return is_exercise(cell) or is_check(cell) or is_use(cell)


def without_magics(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(MAGICS))


def what_binds(source: str, needed: set[str]) -> str:
    """Of a cell, the statements that bind a needed name, and those that these need in their turn."""
    kept, needed = [], set(needed)
    for statement in map(ast.unparse, reversed(ast.parse(without_magics(source)).body)):
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
    """Write them all, and say how many of a master's cells are left of how many."""
    for kind in ("students", "masters"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for old in (folder / kind).glob("*.ipynb"):
            old.unlink()
    for master in masters.masters():
        whole = masters.with_solutions(master)
        reduced = to_check(whole)
        write(folder / "masters" / f"{master.stem}.ipynb", masters.as_text(strict(reduced)))
        theirs = with_what_is_typed(masters.for_students(master))
        write(folder / "students" / f"{master.stem}.ipynb", masters.as_text(theirs))
        n_code = sum(cell.cell_type == "code" for cell in whole.cells)
        n_checks = sum(is_check(cell) for cell in reduced.cells)
        print(f"{master.stem}: {len(reduced.cells)} of {n_code} cells, {n_checks} checks")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
