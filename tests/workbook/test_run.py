"""`course run` on a lesson of two cells."""

import pytest

from course_lib.workbook import masters, run

HEAD = """# %% [markdown]
# # A lesson
#
# $$ a = b^2 $$
#
# costs $5 and $x_j$, which is $a +
# b$

# %%
import os

print('strict', os.environ['COURSE_STRICT'] or 'no')

"""
EXERCISE = """# %% exercise="wanda.score"
def wanda_score(weight, inputs):
    ### BEGIN SOLUTION
    return weight.abs() * {norm}
    ### END SOLUTION


# %%
from course_lib.workbook import check

check("wanda.score", wanda_score)
"""
MASTER = "solutions/04_wanda.py"
RIGHT, WRONG = (HEAD + EXERCISE.replace("{norm}", norm) for norm in ("inputs.norm(dim=0)", "1"))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "04_wanda.py").write_text(RIGHT)
    return tmp_path


def test_master_runs_strictly_and_shows_what_it_prints(root, capsys):
    assert run.run("04", html=True, root=root) == 0
    out = capsys.readouterr().out
    assert "strict 1" in out
    assert "Right · The Wanda score" in out
    page = (root / "build" / "run" / "04_wanda.html").read_text()
    assert "border-left:.35em solid #2e7d32" in page  # the verdict, as HTML
    assert page.count("<math ") == 3  # formulas come as MathML: no script has to be fetched for them
    assert "costs $5 and" in page
    assert (root / "build" / "run" / "04_wanda.ipynb").exists()


def test_a_wrong_master_fails(root, capsys):
    (root / "solutions" / "04_wanda.py").write_text(WRONG)
    assert run.run("04", root=root) == 1
    assert "wanda.score is wrong" in capsys.readouterr().out


def test_the_student_notebook_runs_through_unsolved(root, capsys):
    assert run.run("04", student=True, root=root) == 0
    out = capsys.readouterr().out
    assert "strict no" in out
    assert "Not attempted · The Wanda score" in out


@pytest.mark.parametrize("master", masters.masters(), ids=lambda path: path.stem)
def test_every_lesson_becomes_a_page_with_all_its_formulas(master, tmp_path):
    notebook = masters.for_students(master)
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    n_formulas = sum(len(run._FORMULA.findall(source)) for source in prose)
    page = run._render(notebook, tmp_path / f"{master.stem}.ipynb").read_text()
    assert n_formulas > 0
    assert page.count("<math ") == n_formulas


def test_a_cell_whose_output_never_comes_fails_instead_of_losing_it(root, monkeypatch, capsys):
    def ends_without_its_output(client, *arguments, **named):
        assert client.raise_on_iopub_timeout
        assert client.iopub_timeout == run.CELL_SECONDS
        raise run.CellTimeoutError("Timeout waiting for IOPub output")

    monkeypatch.setattr(run.NotebookClient, "execute", ends_without_its_output)
    assert run.run("04", root=root) == 1
    assert "Timeout waiting for IOPub output" in capsys.readouterr().out


def test_in_a_students_copy_the_notebook_runs_as_it_stands(root, capsys):
    (root / "notebooks").mkdir()
    for name in ("04_wanda", "04_wanda.mine-1"):
        (root / "notebooks" / f"{name}.ipynb").write_text(masters.as_text(masters.with_solutions(root / MASTER)))
    (root / MASTER).unlink()
    (root / "solutions").rmdir()
    assert run.run("wanda", root=root) == 0
    out = capsys.readouterr().out
    assert "strict no" in out
    assert "Right · The Wanda score" in out
    with pytest.raises(ValueError, match="got lesson '07'; expected one of 04_wanda, 04_wanda.mine-1, or"):
        run.run("07", root=root)


def test_a_run_that_is_stopped_ends_its_kernel_and_says_so(root):
    """The signal comes from the kernel, as Ctrl-C would from the terminal, to the process that waits for it."""
    cell = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)\n"
    (root / "solutions" / "04_wanda.py").write_text(f"# %%\n{cell}")
    with pytest.raises(KeyboardInterrupt):
        run.run("04", root=root)
