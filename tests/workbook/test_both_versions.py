"""What nbval runs once for both versions of a lesson finds what is broken in either of them."""

import os
import re
import subprocess
import sys

import both_versions
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from notebooks_to_check import both
from traitlets.config import Config

from course_lib.workbook import masters, progress, yours
from course_lib.workbook.checks import CheckFailed

LESSON = '''# %%
import torch

from course_lib.workbook import check, mine

# %% exercise="wanda.score"
def wanda_score(weight, inputs):
    """The score."""
    ### BEGIN SOLUTION
    return weight.abs() * inputs.norm(dim=0)
    ### END SOLUTION

# %%
check("wanda.score", wanda_score)

# %%
score = mine("wanda.score", wanda_score)(torch.arange(21.0).view(7, 3), 2 * torch.ones(4, 3))

# %%
total = score.sum()
'''


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """IPython itself, without a kernel; nothing of it stays."""
    monkeypatch.setattr(yours, "mine", yours.mine)  # given back afterwards, as what IPython takes
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    config = Config(HistoryManager={"enabled": False})
    yield InteractiveShell.instance(config=config, ipython_dir=str(tmp_path / "ipython"))
    InteractiveShell.instance().restore_sys_module_state()
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell, tmp_path, monkeypatch):
    """Runs a lesson's cells one after the other as nbval does, whatever failed before; returns errors by cell."""
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COURSE_STRICT", raising=False)

    def failing(text):
        code = [cell for cell in both(written(tmp_path, text)).cells if cell.cell_type == "code"]
        ran = {cell.id: shell.run_cell(cell.source) for cell in code}
        return {name: each.error_before_exec or each.error_in_exec for name, each in ran.items() if not each.success}

    return failing


def written(folder, text):
    path = folder / "98_made_up.py"
    path.write_text(text, encoding="utf-8")
    return path


def changed(old, new):
    assert LESSON.count(old) == 1
    return LESSON.replace(old, new)


def test_a_lesson_runs_in_both_versions_and_nothing_of_the_students_is_solved(run, shell):
    assert run(LESSON) == {}
    assert shell.user_ns["total"] == 210 * 4  # 0 + 1 + … + 20, and each norm is 4
    with pytest.raises(NotImplementedError):
        shell.user_ns["wanda_score"](None, None)
    assert progress.load()["wanda.score"].solved is None
    assert progress.load()["wanda.score"].hints == 1
    assert "COURSE_STRICT" not in os.environ


def test_a_masters_answer_that_is_not_right_fails_where_it_stands(run):
    failed = run(changed("norm(dim=0)", "norm(dim=0) ** 2"))
    assert next(iter(failed)) == "solved-wanda-score"
    assert isinstance(failed["solved-wanda-score"], CheckFailed)
    assert "wanda.score is wrong" in str(failed["solved-wanda-score"])


def test_a_masters_answer_that_is_right_in_its_check_but_not_on_real_data_fails_where_it_is_used(run):
    failed = run(changed("inputs.norm(dim=0)\n", "inputs.norm(dim=0) * (weight != 20)\n"))
    assert "solved-wanda-score" not in failed
    used, *_ = failed.values()
    assert isinstance(used, CheckFailed)
    assert "on real data" in str(used)


def test_a_cell_that_needs_a_solved_exercise_fails(run):
    failed = run(changed("total = score.sum()", "total = wanda_score(score, score)"))
    assert [type(error) for error in failed.values()] == [NotImplementedError]


def test_a_broken_cell_of_both_versions_fails(run):
    failed = run(changed("score.sum()", "score.summ()"))
    assert [type(error) for error in failed.values()] == [AttributeError]


def test_a_students_stub_that_cannot_run_fails(run):
    failed = run(changed('    """The score."""', '    """The score."""\n    import = 1'))
    assert {"solved-wanda-score", "wanda-score"} <= failed.keys()


@pytest.mark.parametrize("other", [[torch.ones(2)], torch.ones(2, dtype=torch.float64), torch.ones(2, 1), 1.0])
def test_an_answer_of_another_kind_than_the_courses_fails(other):
    asked = both_versions.Both("wanda.score", lambda: torch.ones(2), lambda: other)
    with pytest.raises(CheckFailed, match="the answer gives"):
        asked()
    assert both_versions.Both("wanda.score", lambda: other, lambda: other)() is other


@pytest.mark.parametrize("other", [2, 2.0, torch.tensor(2.0)])
def test_a_number_is_a_number(other):
    assert both_versions.Both("sinks.cost", lambda: 2.0, lambda: other)() == 2.0


def test_nbval_says_which_cell_is_broken_and_why(tmp_path):
    notebook = tmp_path / "98_made_up.ipynb"
    notebook.write_text(masters.as_text(both(written(tmp_path, changed("norm(dim=0)", "norm(dim=0) ** 2")))))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env"]
    environment = os.environ | {"COURSE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(masters.ROOT)}
    done = subprocess.run(
        [*command, notebook.name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    report = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)  # without colours
    assert done.returncode == 1, report
    asked = "no answer of the master above is right"
    for said in ("Cell 2", "CheckFailed: wanda.score is wrong", "norm(dim=0) ** 2", asked, "3 failed, 6 passed"):
        assert said in report, report
