"""The real nbgrader makes the students' version of lesson 00 from the source tree, and grades what they hand in."""

import copy
import csv
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from course_lib.checking.judge import judge
from course_lib.grading.release import command as release
from course_lib.grading.release import nbgrader as nbgrader_tree
from course_lib.grading.release import nbgrader_cell
from course_lib.workbook import masters
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import CheckFailed

LESSON = "00_start_here"
QUIET = Console(quiet=True)


def test_a_graded_cell_gives_the_share_of_the_cases(capsys):
    exercise = find("start.sparsity")
    assert nbgrader_cell.check("start.sparsity", exercise.reference) == exercise.points
    small = next(mistake for mistake in exercise.mistakes if mistake.name == "small counts as zero")
    verdict = judge(exercise, small.function)
    assert 0 < nbgrader_cell.check("start.sparsity", small.function) == round(verdict.share, 2) < 1
    assert "This looks like: small counts as zero" in capsys.readouterr().out


def test_a_graded_cell_raises_where_nothing_is_right():
    def stub(tensor):
        raise NotImplementedError

    for function, said in ((stub, "not attempted"), (lambda tensor: "yes", "wrong")):
        with pytest.raises(CheckFailed, match=f"start.sparsity is {said}"):
            nbgrader_cell.check("start.sparsity", function)


def test_nothing_gets_to_stderr_in_a_graded_cell(capfd):
    def loud(tensor):
        warnings.warn("a warning", stacklevel=1)
        print("a print", file=sys.stderr)
        os.write(2, b"from below Python")
        return find("start.sparsity").reference(tensor)

    nbgrader_cell.check("start.sparsity", loud)
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_the_line_that_puts_the_programs_on_the_path_is_printed(tmp_path, capsys):
    """nbgrader dies with "No such file: alembic" where it is called by its path from outside of its environment."""
    nbgrader_tree.write(tmp_path, masters.masters(["04"]), Console())
    assert f"run this first: {nbgrader_tree.path_line()}" in capsys.readouterr().out
    assert str(Path(sys.executable).parent) in nbgrader_tree.path_line()


def test_a_configuration_that_somebody_changed_is_kept(tmp_path):
    nbgrader_tree.write(tmp_path, masters.masters(["04"]), QUIET)
    config = tmp_path / "nbgrader_config.py"
    assert config.read_text() == nbgrader_tree.CONFIG
    config.write_text("mine")
    nbgrader_tree.write(tmp_path, masters.masters(["00", "04"]), QUIET)
    assert config.read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "source").iterdir()) == [LESSON, "04_wanda"]
    with pytest.raises(ValueError, match="which is a file; expected a folder"):
        nbgrader_tree.write(config, [], QUIET)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The tree, with the students' version made by nbgrader."""
    pytest.importorskip("nbgrader", reason="nbgrader is not there: pip install -r requirements.lock")
    folder = tmp_path_factory.mktemp("nbgrader")
    release.run(None, folder, None, ["00"], QUIET)
    nbgrader(folder, "generate_assignment", LESSON)
    return folder


def nbgrader(folder: Path, *arguments: str) -> None:
    """Run the real nbgrader. It looks for its own programs on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "COURSE_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def released(tree: Path) -> dict:
    return json.loads((tree / "release" / LESSON / f"{LESSON}.ipynb").read_text(encoding="utf-8"))


def test_what_nbgrader_gives_to_students_says_what_the_courses_own_notebook_says(tree):
    mine = json.loads((masters.ROOT / "notebooks" / f"{LESSON}.ipynb").read_text(encoding="utf-8"))
    sources = [["".join(cell["source"]).strip() for cell in notebook["cells"]] for notebook in (released(tree), mine)]
    assert sources[0] == sources[1]
    assert sum("raise NotImplementedError" in source for source in sources[0]) == 5


def hand_in(tree: Path, student: str, functions: dict[str, str], whole: bool) -> None:
    """A student's notebook, with these cells in place of the stubs; without the experiments unless `whole`."""
    notebook = copy.deepcopy(released(tree))
    for cell in notebook["cells"]:
        if "exercise" in cell["metadata"]:
            cell["source"] = functions.get(cell["metadata"]["exercise"], cell["source"])
    if not whole:
        imports = {"cell_type": "code", "id": "imports", "metadata": {}, "outputs": [], "execution_count": None}
        imports["source"] = "import sys, warnings\nimport torch\nfrom course_lib.workbook import check"
        notebook["cells"] = [imports, *(cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"])]
    path = tree / "submitted" / student / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


@pytest.mark.real
def test_the_masters_answers_earn_all_points_untouched_stubs_none_and_wrong_ones_their_share(tree):
    cells = masters.with_solutions(masters.masters(["00"])[0]).cells
    answers = {cell.metadata["exercise"]: cell.source for cell in cells if "exercise" in cell.metadata}
    hand_in(tree, "ada", answers, whole=True)
    hand_in(tree, "nobody", {}, whole=False)
    noise = 'warnings.warn("a warning"); print("a print", file=sys.stderr)'  # costs points in nbgrader, not here
    loud = {name: source.replace("### BEGIN SOLUTION", noise) for name, source in answers.items()}
    wrong = {"start.speedup": loud["start.speedup"].replace(" if left > 0 else 0.0", "")}
    assert wrong["start.speedup"] != loud["start.speedup"]
    hand_in(tree, "bob", loud | wrong, whole=False)

    nbgrader(tree, "autograde", LESSON, "--create")
    nbgrader(tree, "export")

    with (tree / "grades.csv").open(encoding="utf-8") as file:
        grades = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    all_points = sum(find(name).points for name in answers)

    def without_limit(share, goal):
        return share / (1 / goal - (1 - share))

    share = nbgrader_cell.points_for(judge(find("start.speedup"), without_limit))
    assert 0 < share < 2
    assert grades == {
        "ada": (all_points, all_points),
        "nobody": (0.0, all_points),
        "bob": (pytest.approx(all_points - 2 + share), all_points),
    }
