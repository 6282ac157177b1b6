"""Read the masters in solutions/ and turn each into notebooks: with the solutions, or with stubs for students."""

import ast
import hashlib
import re
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lib.workbook.catalogue import exercises_of, find, functions_checked
from course_lib.workbook.folders import ROOT, repository
from course_lib.workbook.lookup import chosen

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
_REGION = re.compile(rf"^([ \t]*){BEGIN}\n.*?^[ \t]*{END}[ \t]*$", re.MULTILINE | re.DOTALL)
# Put in front of the first code cell. In an environment of the course it does nothing.
_FIRST = """# Run this cell first: it imports what this lesson uses.
try:
    import course_lib.workbook
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "This kernel does not have the course's library. Choose the kernel that `make lab` opens, or run this line "
        "in a new cell and restart the kernel: {line}"
    ) from None

"""
_OVERVIEW = "from course_lib.workbook import check_all\n\ncheck_all()"
_LAST = """## All exercises

Run the last cell when you have finished, and save the notebook before you do. It checks every exercise once more and
lists what grading would run for each of them."""


def masters(names: list[str] | None = None, root: Path = ROOT) -> list[Path]:
    """Find the masters of these lessons, by any of their names; all of them for None.

    Raises:
        ValueError: for a name that no lesson has, and if there are no masters.
    """
    if not (root / "solutions").is_dir():
        raise ValueError(f"got {root}, which has no masters; run this command in a checkout of the course.")
    return chosen(names, sorted((root / "solutions").glob("[0-9][0-9]_*.py")))


def with_solutions(master: Path) -> NotebookNode:
    """Convert a master to a notebook that runs, solutions included."""
    return _finish(_read(master), master)


def for_students(master: Path) -> NotebookNode:
    """Make the student notebook: every solution region becomes `raise NotImplementedError`."""
    notebook = _read(master)
    for cell in notebook.cells:
        cell.source = stub(cell.source, cell.metadata.get("exercise"), master.name)
    return _finish(notebook, master)


def stub(source: str, exercise: str | None, where: str) -> str:
    """Replace the solution regions of a cell.

    Raises:
        ValueError: if markers and the cell's exercise do not match, so that no solution can get through.
    """
    if source.count(BEGIN) != source.count(END):
        raise ValueError(f"{where}: {source.count(BEGIN)} '{BEGIN}' but {source.count(END)} '{END}' in one cell.")
    if (BEGIN in source) is not (exercise is not None):
        raise ValueError(
            f'{where}: a cell has a solution region or exercise="..." but not both; expected both: {source[:60]!r}'
        )
    if exercise is None:
        return source
    find(exercise)
    return _REGION.sub(rf'\1raise NotImplementedError("Exercise {exercise}: replace this line")', source)


def solution(exercise_id: str, root: Path = ROOT) -> str:
    """Find the cell that solves an exercise, without the marks of its region; empty if there are no masters."""
    lesson = exercises_of(exercise_id.split(".")[0]).LESSON[:2]
    for master in (root / "solutions").glob(f"{lesson}_*.py"):
        for cell in _read(master).cells:
            if cell.metadata.get("exercise") == exercise_id:
                return re.sub(rf"^[ \t]*(?:{BEGIN}|{END})[ \t]*\n?", "", cell.source, flags=re.MULTILINE).rstrip()
    return ""


def parameters(master: Path) -> dict[str, list[str]]:
    """Return the parameter names of each exercise's function in the notebook: {"wanda.score": ["weight", "inputs"]}."""
    cells = ((cell.metadata.get("exercise"), cell.source) for cell in _read(master).cells)
    return {exercise: _arguments(source) for exercise, source in cells if exercise is not None}


def _arguments(source: str) -> list[str]:
    """Return the parameters of the function that contains the solution region."""
    line = source[: source.index(BEGIN)].count("\n") + 1
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    return [argument.arg for node in functions if node.lineno < line <= node.end_lineno for argument in node.args.args]


def _read(master: Path) -> NotebookNode:
    return jupytext.reads(master.read_text(encoding="utf-8"), fmt="py:percent")


def _finish(notebook: NotebookNode, master: Path) -> NotebookNode:
    """Set stable ids, nbgrader's metadata, and a fingerprint that later shows whether a student edited it."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        name = _cell_id(cell)
        seen[name] = seen.get(name, 0) + 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"
        cell.metadata = NotebookNode(_metadata(cell))
    _add_both_ends(notebook, master.parents[1])
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        course={"lesson": master.stem, "fingerprint": fingerprint(notebook)},
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return notebook


def _add_both_ends(notebook: NotebookNode, root: Path) -> None:
    """Let the first code cell install the library if it is missing, and add the last cells if there are exercises."""
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is not None and "nbgrader" not in first.metadata:
        first.source = _FIRST.format(line=_install_line(root)) + first.source
    if any(functions_checked(cell.source) for cell in notebook.cells):
        notebook.cells.append(new_markdown_cell(_LAST, id="check-all-text"))
        notebook.cells.append(new_code_cell(_OVERVIEW, id="check-all"))


def _install_line(root: Path) -> str:
    """Return the line that installs the course: from its repository if that is set, else from the folder above."""
    address = repository(root) if (root / "pyproject.toml").is_file() else ""
    return f"%pip install git+{address}" if address else "%pip install -e .."


def _cell_id(cell: NotebookNode) -> str:
    if exercise := cell.metadata.get("exercise"):
        return exercise.replace(".", "-")
    if checked := _checked(cell):
        return f"check-{checked.replace('.', '-')}"
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def _checked(cell: NotebookNode) -> str | None:
    """Return the exercise that a cell checks."""
    return next(iter(functions_checked(cell.source)), None)


def _metadata(cell: NotebookNode) -> dict:
    """Make nbgrader's marks for the answer and its check, so that nbgrader can use the notebooks too."""
    common = {"schema_version": 3, "task": False, "grade_id": cell.id}
    if exercise := cell.metadata.get("exercise"):
        graded = {"grade": False, "solution": True, "locked": False}
        return {"exercise": exercise, "nbgrader": common | graded}
    if checked := _checked(cell):
        graded = {"grade": True, "solution": False, "locked": True, "points": find(checked).points}
        return {"nbgrader": common | graded}
    if cell.cell_type == "code" and _only_imports(cell.source):
        return {"jupyter": {"source_hidden": True}}  # a screenful of imports would hide the start of the lesson
    return {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}


def _only_imports(source: str) -> bool:
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    body = ast.parse("\n".join(lines)).body
    return len(body) > 1 and all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)


def fingerprint(notebook: NotebookNode) -> str:
    """Make a digest of the cells' sources; running a notebook does not change it, editing it does."""
    contents = [[cell.cell_type, cell.source] for cell in notebook.cells]
    return hashlib.sha256(repr(contents).encode()).hexdigest()


def as_text(notebook: NotebookNode) -> str:
    """Serialise a notebook: the same bytes for the same content."""
    return nbformat.writes(notebook) + "\n"
