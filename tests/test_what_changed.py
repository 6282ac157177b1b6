"""`make check` runs the tests of what changed: found by imports, nearest first, and it says what it left out."""

import subprocess
from pathlib import Path

import pytest
import what_changed

FILES = {
    "course_lib/__init__.py": "",
    "course_lib/ground.py": "SIZE = 3",
    "course_lib/middle.py": "def lazily():\n    from course_lib.ground import SIZE\n    return SIZE",
    "course_lib/methods/__init__.py": "",
    "course_lib/methods/wanda.py": "",
    "course_lib/table.json": "{}",
    "course_lib/reader.py": "NAME = 'table.json'",
    "tests/helpers/twins.py": "import course_lib.middle",
    "tests/test_ground.py": "from course_lib.ground import SIZE",
    "tests/test_middle.py": "from course_lib import middle",
    "tests/kv/test_far.py": "from twins import slow",
    "tests/test_methods.py": "from course_lib import methods",
    "tests/test_wanda.py": "from course_lib.methods.wanda import Wanda",
    "tests/test_reader.py": "from course_lib.reader import NAME",
    "tests/test_lessons.py": "",
    "tests/test_layout.py": "",
    "solutions/04_wanda.py": "",
}


@pytest.fixture
def git(tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    return git


@pytest.fixture
def root(tmp_path, git):
    """A project of few files, of one commit on main."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    return tmp_path


def chosen(root, *changed):
    return what_changed.choose(what_changed.distances(what_changed.importers(root), changed), root)


def test_tests_are_found_by_imports_nearest_first(root):
    names, late, far = chosen(root, "course_lib/ground.py")
    assert names == ["tests/test_layout.py", "tests/test_ground.py", "tests/test_middle.py", "tests/kv/test_far.py"]
    assert late == []
    assert far == ["tests/test_lessons.py", "tests/test_methods.py", "tests/test_reader.py", "tests/test_wanda.py"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("course_lib/methods/wanda.py", {"test_wanda.py", "test_methods.py"}),  # discovered in its folder
        ("course_lib/methods/new.py", set()),  # nobody knows it yet
        ("course_lib/table.json", {"test_reader.py"}),  # mentioned by its name
        ("solutions/04_wanda.py", {"test_lessons.py"}),
        ("tests/test_middle.py", {"test_middle.py"}),
        ("course_lib/__init__.py", set()),
    ],
)
def test_what_a_change_reaches(root, changed, expected):
    names, *_ = chosen(root, changed)
    assert {Path(name).name for name in names} == expected | {"test_layout.py"}


def test_what_does_not_fit_the_time_is_said(root, monkeypatch):
    monkeypatch.setattr(what_changed, "SECONDS", {"test_middle.py": 500, "test_ground.py": 150, "test_far.py": 40})
    names, late, _ = chosen(root, "course_lib/ground.py")
    assert names == ["tests/test_layout.py", "tests/test_ground.py", "tests/kv/test_far.py"]
    assert late == ["tests/test_middle.py"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("course_lib/lessons/wanda/exercises/column_groups.py", ["wanda.column_groups"]),
        ("course_lib/lessons/wanda/exercises/column_groups.md", ["wanda.column_groups"]),
        ("course_lib/lessons/wanda/exercises/common.py", ["wanda."]),
        ("course_lib/lessons/wanda/exercises/__init__.py", ["wanda."]),
        ("course_lib/grading/hidden_cases/wanda.py", ["wanda."]),
        ("course_lib/grading/hidden_cases/__init__.py", []),
        ("course_lib/lessons/wanda/plots.py", []),
    ],
)
def test_the_exercises_to_which_a_file_belongs(changed, expected):
    assert what_changed.exercises_of([changed]) == expected


def test_an_exercise_has_all_of_its_tests_whatever_the_time(monkeypatch, capsys):
    runs = []
    monkeypatch.setattr(
        what_changed, "changed_files", lambda *_: ["course_lib/lessons/wanda/exercises/column_groups.py"]
    )
    monkeypatch.setattr(what_changed, "run_tests", lambda *arguments: runs.append(arguments) or 5 * (len(runs) - 1))
    assert what_changed.main(["-x"]) == 0
    (_, *chosen), (_, option, ids, *narrowed) = runs
    assert (option, ids) == ("-k", "wanda.column_groups")
    assert set(what_changed.PER_EXERCISE) <= {*chosen, *narrowed}
    assert set(chosen).isdisjoint(narrowed)
    left = next(line for line in capsys.readouterr().out.splitlines() if "no time for them" in line)
    assert not any(name in left for name in what_changed.PER_EXERCISE)


@pytest.mark.parametrize("codes", [(1, 0), (0, 1)])
def test_a_failure_in_either_run_is_a_failure(codes, monkeypatch):
    left = list(codes)
    monkeypatch.setattr(what_changed, "changed_files", lambda *_: ["course_lib/lessons/wanda/exercises/score.md"])
    monkeypatch.setattr(what_changed, "run_tests", lambda *_: left.pop(0))
    assert what_changed.main([]) == 1


def test_it_compares_with_where_the_branch_left_main(root, git):
    first = git("rev-parse", "HEAD")
    (root / "course_lib" / "ground.py").write_text("SIZE = 4")
    assert what_changed.compared_with(root)[0] == first
    assert "the last commit" in what_changed.compared_with(root)[1]
    git("commit", "-qam", "second")
    assert what_changed.compared_with(root)[0] == first
    assert "the commit before the last" in what_changed.compared_with(root)[1]
    git("checkout", "-qb", "branch", first)
    (root / "course_lib" / "middle.py").unlink()
    git("commit", "-qam", "third")
    (root / "tests" / "test_new.py").touch()
    base, said = what_changed.compared_with(root)
    assert (base, "where this branch left it" in said) == (first, True)
    assert what_changed.changed_files(root, base) == ["course_lib/middle.py", "tests/test_new.py"]


def test_the_project_has_the_files_that_it_names():
    names = {path.name for path in (what_changed.ROOT / "tests").rglob("test_*.py")}
    assert all((what_changed.ROOT / name).exists() for name in what_changed.PER_EXERCISE)
    assert set(what_changed.BY_FOLDER.values()) | set(what_changed.SECONDS) | {"test_style.py"} <= names
    assert all((what_changed.ROOT / name).exists() for name in what_changed.EVERYTHING)
    assert all((what_changed.ROOT / name).exists() for name in what_changed.FOUND_BY.values())


def test_what_is_found_by_its_place_has_the_tests_of_who_looks_there():
    users = what_changed.importers(what_changed.ROOT)
    assert "course_lib/workbook/catalogue.py" in users["course_lib/lessons/kv/exercises/slots.py"]
    assert "course_lib/workbook/decks/markdown.py" in users["course_lib/lessons/sinks/deck.py"]
    assert "course_lib/kernels.py" in users["kernels/weights/wanda_mask.py"]
    assert "kernels/bench/__init__.py" in users["kernels/bench/weights/wanda_mask.py"]
    assert "course_lib/cli/reproduce.py" in users["course_lib/lessons/sinks/experiments/backcopy.py"]
    assert "course_lib/grading/report/templates.py" in users["course_lib/grading/report/templates/tables.html"]
    assert "tests/grading/sandbox/test_sandbox.py" in users["tests/helpers/submitting.py"]
