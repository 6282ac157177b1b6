"""`course release --nbgrader`: nbgrader's source tree from the masters; nbgrader makes, collects and grades from it."""

import os
import sys
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console

from course_lib.workbook import masters
from course_lib.workbook.build import write as write_text

# nbgrader removes these lines from the students' copy and restores them before it grades.
GRADED = """### BEGIN HIDDEN TESTS
# This check gives points, and keeps stderr empty: nbgrader takes it for an error.
from course_lib.grading.release.nbgrader_cell import check
### END HIDDEN TESTS
"""

CONFIG = '''"""Settings of nbgrader for this course, written by `course release --nbgrader`."""

from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import ClearSolutions


class CourseStub(ClearSolutions):
    """In place of a solution stands what stands there in the course's own notebooks: it names the exercise."""

    def preprocess_cell(self, cell, resources, cell_index):
        stub = f'raise NotImplementedError("Exercise {cell.metadata.get("exercise")}: replace this line")'
        self.code_stub = {"python": stub}
        return super().preprocess_cell(cell, resources, cell_index)


c = get_config()
c.CourseDirectory.course_id = "sparsity"
steps = GenerateAssignment.class_traits()["preprocessors"].default()
c.GenerateAssignment.preprocessors = [CourseStub if step is ClearSolutions else step for step in steps]
c.Execute.timeout = 600  # seconds for one cell; some load or prune a model
'''


def write(folder: Path, chosen: list[Path], console: Console) -> None:
    """Write nbgrader_config.py and source/LESSON/LESSON.ipynb for each master. A changed configuration is kept.

    Raises:
        ValueError: if the folder is a file, or part of the course itself.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"got {folder}, which is a file; expected a folder for nbgrader's tree.")
    config = folder / "nbgrader_config.py"
    for master in chosen:
        path = folder / "source" / master.stem / f"{master.stem}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, masters.as_text(source(master)))
    if config.exists() and config.read_text(encoding="utf-8") != CONFIG:
        console.print(f"{config} is yours and stays as it is; that of the course would be:\n\n{CONFIG}", markup=False)
    else:
        write_text(config, CONFIG)
    console.print(f"{folder}: {len(chosen)} assignments in source/", soft_wrap=True)
    first = f"nbgrader generate_assignment {chosen[0].stem}"
    console.print(f"Next, in {folder}: {first}, and the others like it", soft_wrap=True)
    console.print(
        f"nbgrader starts other programs by name. If its environment is not active, run this first: {path_line()}",
        soft_wrap=True,
        markup=False,
    )


def path_line() -> str:
    """Return the shell command that puts the programs of this environment on the PATH."""
    programs = Path(sys.executable).parent
    return f'set "PATH={programs};%PATH%"' if os.name == "nt" else f'export PATH="{programs}:$PATH"'


def source(master: Path) -> NotebookNode:
    """Return the master with solutions, in which nbgrader gives points for every check."""
    notebook = masters.with_solutions(master)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = GRADED + cell.source
    return notebook
