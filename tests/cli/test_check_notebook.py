"""`course check-notebook`: the verdicts of grading, in words, for notebooks right, half done and nonsense."""

import io
import json
import multiprocessing
import sys

import jupytext
import pytest
from rich.console import Console

from course_lib.cli import check_notebook
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook import masters
from course_lib.workbook.catalogue import find

LESSON = masters.ROOT / "solutions" / "04_wanda.py"


def written(path, edit=lambda cells: None):
    """The master of lesson 04 as a student's notebook, after an edit of its cells by exercise."""
    notebook = json.loads(jupytext.writes(jupytext.read(LESSON), fmt="ipynb"))
    cells = {cell["metadata"]["exercise"]: cell for cell in notebook["cells"] if "exercise" in cell["metadata"]}
    edit(cells)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def shown(path):
    console = Console(record=True, width=200, file=io.StringIO())
    code = check_notebook.run(path, console)
    return code, console.export_text()


def test_a_right_notebook(tmp_path):
    code, text = shown(written(tmp_path / "04_wanda.ipynb"))
    assert code == 0
    assert text.count("right         wanda.") == len(EXERCISES)
    assert f"{len(EXERCISES)} of {len(EXERCISES)} are right as they would be graded" in text


def test_where_a_process_cannot_be_forked(tmp_path, monkeypatch):
    """As on Windows, and as on macOS, where it could be and must not."""
    how, get_context = [], multiprocessing.get_context
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: how.append(name) or get_context(name))
    content = written(tmp_path / "04_wanda.ipynb").read_bytes()
    row = check_notebook._row(content, find("wanda.score"), check_notebook.usual_names())
    assert (row.state, row.reason, how) == ("right", "", ["spawn"])


def test_a_half_and_partly_wrong_one(tmp_path):
    def edit(cells):
        cells["wanda.score"]["source"] = (
            "T = []\nfor i in range(3):\n    T.append(i)\n\n"
            "def wanda_score(weight, inputs):\n    return weight.abs() * inputs.norm(dim=T[0])"
        )
        cells["wanda.accumulate"]["source"] = "def accumulate(total, batch):\n    return batch"
        cells["wanda.keep_rows"]["source"] = "def keep_rows(score, sparsity)\n    return score"
        cells["wanda.column_groups"]["source"] = "def keep_columns(score, sparsity):\n    raise NotImplementedError"
        cells["wanda.n_of_m"]["source"] = (
            "from course_lib.models import load_model\n\nWIDTH = load_model()[0].config.hidden_size\n\n"
            "def keep_n_of_m(score, n, m):\n    return WIDTH"
        )
        cells["wanda.obs_score"]["source"] = "import os\n\ndef obs_score(weight, hessian):\n    os._exit(0)"
        cells["wanda.interval"]["source"] = (
            "from course_lib.lessons.wanda.exercises import EXERCISES\n\ninterval = EXERCISES[-1].reference"
        )

    rows = {row.exercise: row for row in check_notebook.check(written(tmp_path / "any name.ipynb", edit))}
    assert {name: row.state for name, row in rows.items()} == {
        **{exercise.id: "right" for exercise in EXERCISES},
        "wanda.accumulate": "wrong",
        "wanda.keep_rows": "failed",
        "wanda.column_groups": "not attempted",
        "wanda.n_of_m": "wrong",
        "wanda.obs_score": "failed",
        "wanda.interval": "failed",
    }
    assert rows["wanda.accumulate"].reason.startswith("0 of 4 cases are right. ")
    small = (
        "given total = [10, 20], batch = [[[1, 2], [3, 0]], [[0, -2], [1, 1]]]: the shape is (2, 2, 2), expected (2,)."
    )
    assert small in rows["wanda.accumulate"].reason
    assert "does not parse: line 1" in rows["wanda.keep_rows"].reason
    assert "NameError: name 'WIDTH' is not defined" in rows["wanda.n_of_m"].reason
    (said,) = rows["wanda.n_of_m"].notes
    assert said.startswith("WIDTH is needed, but `WIDTH = load_model()[0].config.hidden_size` in cell ")
    assert said.endswith("is not run: grading loads no model, data or experiment (load_model).")
    assert "ended its process" in rows["wanda.obs_score"].reason
    assert "No module named 'course_lib.lessons" in rows["wanda.interval"].notes[0]


def test_cases_that_earn_nothing_by_themselves_are_explained(tmp_path):
    def edit(cells):
        cells["wanda.keep_rows"]["source"] = "def keep_rows(score, sparsity):\n    return score < 1e9"

    rows = {row.exercise: row for row in check_notebook.check(written(tmp_path / "04_wanda.ipynb", edit))}
    said = rows["wanda.keep_rows"].reason
    assert said.startswith("1 of 7 cases is right: one for which ")
    assert "is enough. Such a case earns points once a case that needs the method is right. " in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nonsense", "04_wanda.ipynb: No notebook can be read from the file: it is not JSON .Expecting value"),
        (b"nonsense", "A notebook is expected: the .ipynb file that JupyterLab saves"),
        (b"", "it is an empty file; save the notebook again"),
        (b'{"cells": [', "a notebook that is cut off or was damaged: save it again"),
        (b'{"cells": []}', "no exercise of the course"),
        (None, "cannot be read"),
    ],
)
def test_nonsense_is_one_line(tmp_path, content, said):
    path = tmp_path / "04_wanda.ipynb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        shown(path)


def test_files_that_cells_write_stay_out_of_the_students_folder(tmp_path, monkeypatch):
    def edit(cells):
        writes = "with open('mine.txt', 'w') as file:\n    PLACE = file.write('x')\n\n"
        cells["wanda.score"]["source"] = (
            f"{writes}def wanda_score(weight, inputs):\n    return weight.abs() * inputs.norm(dim=PLACE - 1)"
        )

    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "04_wanda.ipynb", edit)
    assert check_notebook.check(path)[0].state == "right"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
