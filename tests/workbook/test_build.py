"""From master to student notebook: nothing of a solution gets through, nothing of a student's is lost."""

import json

import nbformat
import pytest

from course_lib.workbook import build, masters
from course_lib.workbook.masters import stub

MASTER = '''# %% [markdown]
# # A lesson

# %%
from course_lib.workbook import check, hint

# %% exercise="wanda.score"
def wanda_score(weight, inputs):
    """Docstring stays."""
    ### BEGIN SOLUTION
    secret = weight.abs()
    return secret * inputs.norm(dim=0)
    ### END SOLUTION


# %%
check("wanda.score", wanda_score)

# %%
print("twice")

# %%
print("twice")
'''


@pytest.fixture
def root(tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "04_wanda.py").write_text(MASTER)
    return tmp_path


def notebook_of(root):
    return root / "notebooks" / "04_wanda.ipynb"


def test_stub_by_hand():
    got = stub("def f(x):\n    ### BEGIN SOLUTION\n    y = x\n    return y\n    ### END SOLUTION", "wanda.score", "m")
    assert got == 'def f(x):\n    raise NotImplementedError("Exercise wanda.score: replace this line")'


@pytest.mark.parametrize(
    ("source", "exercise", "message"),
    [
        ("### BEGIN SOLUTION\nx", "wanda.score", "1 '### BEGIN SOLUTION' but 0 '### END SOLUTION'"),
        ("### BEGIN SOLUTION\nx\n### END SOLUTION", None, "expected both"),
        ("x = 1", "wanda.score", "expected both"),
        ("### BEGIN SOLUTION\nx\n### END SOLUTION", "wanda.scor", "did you mean wanda.score"),
    ],
)
def test_a_master_that_could_leak_is_refused(source, exercise, message):
    with pytest.raises(ValueError, match=message):
        stub(source, exercise, "master.py")


def test_student_notebook(root):
    assert build.run(root=root) == 0
    text = notebook_of(root).read_text()
    assert "secret" not in text
    assert "Docstring stays." in text
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert [c.id for c in notebook.cells][2:4] == ["wanda-score", "check-wanda-score"]
    assert len({c.id for c in notebook.cells}) == len(notebook.cells)
    solution, test = (c.metadata.nbgrader for c in notebook.cells[2:4])
    assert (solution.solution, solution.grade, solution.locked) == (True, False, False)
    assert (test.solution, test.grade, test.locked, test.points) == (False, True, True, 2)
    assert not any(c.get("outputs") for c in notebook.cells)


def test_rebuild_is_byte_identical_and_check_agrees(root):
    build.run(root=root)
    before = notebook_of(root).read_bytes()
    assert build.run(root=root) == 0
    assert build.run(root=root, check=True) == 0
    assert notebook_of(root).read_bytes() == before


def test_check_fails_when_the_master_moved_on_and_writes_nothing(root):
    build.run(root=root)
    before = notebook_of(root).read_bytes()
    (root / "solutions" / "04_wanda.py").write_text(MASTER.replace("# # A lesson", "# # A better lesson"))
    assert build.run(root=root, check=True) == 1
    assert notebook_of(root).read_bytes() == before
    assert build.run(root=root) == 0
    assert "better" in notebook_of(root).read_text()


def test_ids_of_other_cells_stay_when_one_cell_changes(root):
    build.run(root=root)
    ids = [c["id"] for c in json.loads(notebook_of(root).read_text())["cells"]]
    (root / "solutions" / "04_wanda.py").write_text(MASTER.replace("# # A lesson", "# # A better lesson"))
    build.run(root=root)
    again = [c["id"] for c in json.loads(notebook_of(root).read_text())["cells"]]
    assert ids[0] != again[0]
    assert ids[1:] == again[1:]


def student_writes(root):
    notebook = json.loads(notebook_of(root).read_text())
    notebook["cells"][2]["source"] = "def wanda_score(weight, inputs):\n    return my_own_idea"
    notebook_of(root).write_text(json.dumps(notebook))


@pytest.mark.parametrize("master_moves", [False, True])
def test_a_students_notebook_is_never_overwritten(root, master_moves):
    build.run(root=root)
    student_writes(root)
    if master_moves:
        (root / "solutions" / "04_wanda.py").write_text(MASTER.replace("lesson", "better lesson"))
    assert build.run(root=root) == 1
    assert "my_own_idea" in notebook_of(root).read_text()


def test_force_keeps_every_copy(root):
    for _ in range(2):
        build.run(root=root, force=True)
        student_writes(root)
    assert build.run(root=root, force=True) == 0
    copies = sorted(notebook_of(root).parent.glob("*.mine-*.ipynb"))
    assert [c.name for c in copies] == ["04_wanda.mine-1.ipynb", "04_wanda.mine-2.ipynb"]
    assert all("my_own_idea" in c.read_text() for c in copies)
    assert "my_own_idea" not in notebook_of(root).read_text()


def test_running_a_notebook_is_not_writing_in_it(root):
    build.run(root=root)
    notebook = nbformat.read(notebook_of(root), as_version=4)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="hello")]
    notebook.cells[1].execution_count = 3
    assert not build.is_changed(nbformat.writes(notebook))


@pytest.mark.parametrize("text", ["", "not json", '{"cells": []}'])
def test_an_unreadable_notebook_counts_as_a_students(root, text):
    build.run(root=root)
    notebook_of(root).write_text(text)
    assert build.run(root=root) == 1
    assert notebook_of(root).read_text() == text


def test_lessons_are_found_by_number_slug_or_stem(root):
    for name in ("04", "4", "wanda", "04_wanda"):
        assert [p.stem for p in masters.masters([name], root)] == ["04_wanda"]
    with pytest.raises(ValueError, match="got lesson '05'; expected one of 04_wanda"):
        masters.masters(["05"], root)


def test_masters_keep_their_solutions(root):
    (path,) = build.write_masters(root / "out", root)
    assert "secret" in path.read_text()


def test_a_cell_of_imports_is_folded_and_no_other(root):
    path = root / "solutions" / "04_wanda.py"
    path.write_text("# %%\nimport math\nfrom os import path\n\n# %%\nimport math\nx = 1\n\n# %%\nimport math\n")
    cells = masters.with_solutions(path).cells
    assert [cell.metadata.get("jupyter") for cell in cells] == [{"source_hidden": True}, None, None]
