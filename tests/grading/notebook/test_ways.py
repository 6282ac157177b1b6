"""The ways in which students write: each notebook of ways/ gets from the grader what `check` says in a kernel.

A way is a file: what it does, then its cells, each under `# %%`. One that cannot be graded as a kernel runs it says so
in its first line, as `# Differs: WORD`; then the row must hold that word.
"""

import json
import os
from pathlib import Path

import kernel_ways
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from submitting import needs_sandbox
from written_notebooks import notebook

from course_lib.checking.judge import verdict
from course_lib.grading.notebook.program import load
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import session
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import SEED

HELPERS = Path(kernel_ways.__file__).parent
ROOT = HELPERS.parents[1]
FIRST_CELL = "import torch\n\nfrom course_lib.workbook import check"
WAYS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).with_name("ways").glob("*.txt"))}


def cells(way: str) -> list[str]:
    """What stands in the notebook: the imports of every lesson, and the cells of the file."""
    return [FIRST_CELL, *(part.strip("\n") for part in WAYS[way].split("# %%\n")[1:])]


def differs(way: str) -> str:
    first = WAYS[way].split("\n", 1)[0]
    return first.partition("# Differs: ")[2]


@pytest.fixture(scope="module")
def in_a_kernel(tmp_path_factory):
    """What check says to each way: one kernel for all, every way in names of its own."""
    parts = [new_code_cell("import kernel_ways")]
    for way in WAYS:
        parts += [new_code_cell("%reset -f\nimport kernel_ways\nkernel_ways.begin()")]
        parts += [new_code_cell(text) for text in cells(way)]
        parts += [new_code_cell("kernel_ways.end()", metadata={"way": way})]
    whole = new_notebook(cells=parts)
    paths = os.pathsep.join([str(ROOT), str(HELPERS)])
    home = str(tmp_path_factory.mktemp("home"))
    environment = os.environ | {"PYTHONPATH": paths, "COURSE_HOME": home, "OMP_NUM_THREADS": "1"}
    NotebookClient(whole, timeout=120, allow_errors=True, kernel_name="python3").execute(env=environment)
    return {cell.metadata["way"]: said(cell) for cell in whole.cells if "way" in cell.metadata}


def said(cell: nbformat.NotebookNode) -> dict[str, list]:
    text = "".join(output.get("text", "") for output in cell.outputs)
    return json.loads(text.partition(kernel_ways.MARK)[2])


def graded(way: str) -> tuple[dict[str, list], str]:
    """What the grader says on the inputs of check, and all words of the rows."""
    content = notebook(*cells(way))
    usual = {check.exercise: check.name for check in load(content).checks}
    drawn = {name: find(name).cases(_generator()) for name in usual}
    tasks = [Task(name, usual[name], tuple(case.arguments for case in drawn[name])) for name in usual]
    verdicts, words = {}, []
    for task, answer in zip(tasks, session.run(content, tasks, Limits()), strict=True):
        judged = verdict(find(task.exercise), drawn[task.exercise], list(answer.outcomes))
        verdicts[task.exercise] = [judged.state, judged.n_right]
        words += [*answer.notes, answer.reason, judged.difference]
    return verdicts, "\n".join(words)


def _generator():
    import torch

    return torch.Generator().manual_seed(SEED)


@needs_sandbox
@pytest.mark.parametrize("way", WAYS)
def test_the_grader_says_what_check_says(way, in_a_kernel):
    verdicts, words = graded(way)
    assert in_a_kernel[way], "no check ran in the kernel"
    if differs(way):
        assert verdicts != in_a_kernel[way], "it is graded as a kernel runs it: take the first line away"
        assert differs(way) in words, words
    else:
        assert verdicts == in_a_kernel[way], words


def test_the_ways_have_all_verdicts(in_a_kernel):
    states = [state for said in in_a_kernel.values() for state, _ in said.values()]
    assert set(states) == {"right", "wrong", "not attempted"}
    assert states.count("right") > 40
