"""The notebooks that nbval runs, one a lesson: `python tests/helpers/notebooks_to_check.py FOLDER` writes them.

Each is the student's notebook, whole, and nothing in it is solved; a student types into it what the page tells a
student to type. Above each exercise stands the master's answer with its check, which raises, and wherever the notebook
goes on with an answer (`mine`) the master's is asked too (both_versions.py). All other cells of a master are those of
the student's notebook (tests/workbook/test_lessons.py compares them), so that both versions are run at once.
"""

import ast
import re
import symtable
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib.workbook import masters
from course_lib.workbook.build import write

MAGICS = ("%", "!")
TO_TYPE = re.compile(r"`((?:hint|show_progress)\([^`]*\))`")
HERE = Path(__file__).resolve().parent  # a notebook's kernel starts elsewhere
FIRST = f"import sys\n\nsys.path.append({str(HERE)!r})\nimport both_versions\n\nboth_versions.load(get_ipython())"


def both(master: Path) -> NotebookNode:
    """The student's notebook of a master with what is typed, and the master's answers above those to be written."""
    whole = masters.with_solutions(master).cells
    answers = {answer.id: f"{answer.source}\n\n\n{check.source}" for answer, check in pairwise(whole)}
    theirs = with_what_is_typed(masters.for_students(master))
    cells = [new_code_cell(FIRST, id="both-versions")]
    for cell in theirs.cells:
        if is_exercise(cell):
            source = f"%%solved {cell.metadata['exercise']}\n{answers[cell.id]}"
            cells.append(new_code_cell(source, id=f"solved-{cell.id}"))
        cells.append(cell)
    return nbformat.from_dict(theirs | {"cells": cells})


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


def is_exercise(cell: NotebookNode) -> bool:
    return "exercise" in cell.metadata


def is_check(cell: NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def without_magics(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(MAGICS))


def bound(source: str) -> set[str]:
    """Names that a piece of code binds in the notebook: assigned, imported, or defined."""
    table = symtable.symtable(source, "cell", "exec")
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def main(folder: Path) -> None:
    """Write them all, and say how much of a master is run beside the student's cells."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.rglob("*.ipynb"):
        old.unlink()
    for master in masters.masters():
        notebook = both(master)
        write(folder / f"{master.stem}.ipynb", masters.as_text(notebook))
        n_solved = sum(cell.id.startswith("solved-") for cell in notebook.cells)
        print(f"{master.stem}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells, {n_solved} solutions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
