"""A student's copy: it works, every check says what it says in the checkout, and no answer is inside."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import jupytext
import pytest
from rich.console import Console

from course_lib.grading.release import command as release
from course_lib.grading.release import leaks
from course_lib.grading.release.student_files import tracked
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook import build, masters
from course_lib.workbook.catalogue import all_exercises, lessons

SCRIPT = masters.ROOT / "tests" / "helpers" / "same_verdicts.py"
QUIET = Console(quiet=True)
READER = "course_lib/grading/notebook/"  # all that a student's copy has of the grader


def make(folder: Path, names: list[str] | None = None) -> Path:
    """A student's copy, unpacked."""
    release.student_zip(folder / "student.zip", names, QUIET)
    with zipfile.ZipFile(folder / "student.zip") as archive:
        archive.extractall(folder)
    return folder / release.FOLDER


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return make(tmp_path_factory.mktemp("student"))


@pytest.fixture(scope="module")
def first_week(tmp_path_factory):
    return make(tmp_path_factory.mktemp("week"), ["wanda"])


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python as in the copy's own environment."""
    home = copy.parent / "home"
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "COURSE_HOME": str(home)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=copy, capture_output=True, text=True, check=False
    )


def course(copy: Path, *arguments: str) -> subprocess.CompletedProcess:
    return python(copy, "-c", "from course_lib.cli.app import main; main()", *arguments)


def contents(copy: Path) -> dict[str, bytes]:
    """The files of a copy as they were packed: Python, where it was run, has left compiled ones beside them."""
    with zipfile.ZipFile(copy.parent / "student.zip") as archive:
        return {name.removeprefix(f"{release.FOLDER}/"): archive.read(name) for name in archive.namelist()}


def test_nothing_is_offered_that_only_masters_have(copy):
    said = course(copy, "run", "--help").stdout
    assert "--html" in said
    assert "--student" not in said


def test_what_students_need_is_there_and_nothing_else(copy):
    names = contents(copy)
    top = {name.split("/")[0] for name in names}
    files = {"LICENSE", "Makefile", "README.md", "pyproject.toml", "requirements.lock", "setup.py"}
    assert top == files | {"course_lib", "docs", "kernels", "notebooks", "slides"}
    pages = sorted(name for name in names if name.startswith("docs/"))
    assert pages == [f"docs/{name}.md" for name in ("claims", "glossary", "install", "models", "papers", "students")]
    assert {f"notebooks/{path.stem}.ipynb" for path in masters.masters()} <= names.keys()
    reader = {name for name in names if name.startswith(READER)} | {"course_lib/grading/__init__.py"}
    kept_back = r"grading|hidden_cases|kernels/gpu|solution|test_|\.git|\.ci|\.png"
    assert not [name for name in names if re.search(kept_back, name) and name not in reader]
    assert reader - set(tracked(masters.ROOT)) == {f"{READER}functions.json"}


def test_no_file_speaks_of_the_grader(copy):
    for name, content in contents(copy).items():
        text = content.decode("utf-8", errors="ignore")
        assert not re.search(r"course_lib[./]grading(?!([./](notebook|__init__)|$))", text), name
        assert "INSTRUCTORS" not in text, name


def test_every_module_can_be_imported(copy):
    walk = "import pkgutil, importlib, course_lib, course_lib.kernels\nfor p in (course_lib, course_lib.kernels):\n"
    walk += " for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'):\n  importlib.import_module(m.name)\n"
    done = python(copy, "-c", walk + "print(course_lib.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copy / "course_lib" / "__init__.py")


def test_every_check_says_what_it_says_in_the_checkout(copy):
    """The reference, every variant, every mistake and nonsense: the same words, the same counts, the same pictures."""
    done = python(copy, str(SCRIPT), str(masters.ROOT))
    assert done.returncode == 0, done.stderr
    n_exercises, n_functions, n_pictures = map(int, done.stdout.split())
    assert n_exercises == len(all_exercises())
    assert n_functions > 10 * n_exercises
    assert n_pictures == sum(exercise.picture is not None for exercise in all_exercises())


def test_no_line_of_a_solution_is_inside(copy):
    found = leaks.leaks(contents(copy), masters.masters())
    assert {leak.line for leak in found} == set(leaks.ALLOWED), "an allowed line that is nowhere should go"
    assert not [leak for leak in found if leak.file.startswith(("notebooks/", "slides/", "README"))]


@pytest.mark.parametrize("name", ["a.py", "b.ipynb", "c.safetensors"])
def test_a_solution_line_is_found_however_it_is_written(name):
    line = "pruned=score.topk( n_pruned , dim = 1,largest=False).indices   # three"
    content = json.dumps({"cells": [{"source": ["x = 1\n", line]}]}) if name.endswith("ipynb") else f"\0\n  {line}"
    (found,) = leaks.leaks({name: content.encode()}, masters.masters(["04"]))
    assert (found.file, found.line) == (name, "pruned = score.topk(n_pruned, dim=1, largest=False).indices")


def test_a_release_with_a_solution_inside_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(leaks, "ALLOWED", {})
    with pytest.raises(ValueError, match=r"a line of a solution \(.* in all\). Write one of the two differently"):
        release.student_zip(tmp_path / "student.zip", ["00"], QUIET)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def listed(copy):
    """What `course --help` says in a copy."""
    return course(copy, "--help").stdout


def test_commands_for_students_are_there_and_those_for_instructors_are_not(copy, listed):
    for command in ("setup", "doctor", "lab", "run", "check-notebook", "progress", "slides"):
        assert re.search(rf"│ {command} ", listed), command
    for command in ("build", "claims", "grade", "release"):
        assert not re.search(rf"│ {command} ", listed), command
    targets = set(re.findall(r"^([a-z]+):", (copy / "Makefile").read_text(), re.MULTILINE))
    assert targets == {"help", "lab", "setup", "slides", "clean"}
    for target in targets - {"help"}:  # what is left of the Makefile still hangs together
        done = subprocess.run(["make", "-n", target], cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_readme_promises_what_is_there(copy, listed):
    for page in (copy / "README.md", *(copy / "docs").glob("[!c]*.md")):  # all but claims.md
        text = page.read_text()
        for path in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text):
            assert (page.parent / path).exists(), (page.name, path)
        for command in set(re.findall(r"`course ([a-z][\w-]+)", text)):
            assert f"│ {command} " in listed, command
    text = (copy / "README.md").read_text()
    assert "make test" not in text
    assert "nstructor" not in text


def test_a_copy_says_what_grading_makes_of_a_notebook(copy, first_week, tmp_path):
    """Right, untouched, and wrong: the answers are not there, what they give is."""
    notebook = json.loads(jupytext.writes(jupytext.read(masters.ROOT / "solutions" / "04_wanda.py"), fmt="ipynb"))
    first = next(cell for cell in notebook["cells"] if cell["metadata"].get("exercise") == "wanda.accumulate")
    first["source"] = "def accumulate(total, batch):\n    return batch"
    (tmp_path / "mine.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    for folder in (copy, first_week):
        mine, untouched = both(folder, str(tmp_path / "mine.ipynb"), "notebooks/04_wanda.ipynb")
        assert re.findall(r"^(\w+) +wanda\.(\w+)$", mine, re.MULTILINE)[:3] == [
            ("right", "score"),
            ("wrong", "accumulate"),
            ("right", "keep_rows"),
        ]
        assert f"{len(EXERCISES) - 1} of {len(EXERCISES)} are right as they would be graded" in mine
        assert mine.endswith("it ended with 1\n")
        assert untouched.count("not attempted wanda.") == len(EXERCISES)


def both(folder: Path, *notebooks: str) -> list[str]:
    """What `course check-notebook` prints of each, and what it ends with: in one process, which imports torch once."""
    code = "import sys\nfrom course_lib.cli.app import main\nfor notebook in sys.argv[1:]:\n  print('NEXT')\n"
    code += "  sys.argv = ['course', 'check-notebook', notebook]\n  try:\n    main()\n  except SystemExit as end:\n"
    code += "    print('it ended with', end.code)\n"
    done = python(folder, "-c", code, *notebooks)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("NEXT\n")[1:]


def test_progress_of_a_copy_lists_its_lessons(copy, first_week):
    for folder, expected in ((copy, [module.LESSON[:2] for module in lessons()]), (first_week, ["00", "04"])):
        assert re.findall(r"│ (\d\d) ", course(folder, "progress").stdout) == expected


def test_a_release_of_one_lesson_holds_it_and_the_first(first_week):
    names = contents(first_week)
    for folder in ("notebooks", "slides"):
        assert sorted(Path(name).stem for name in names if name.startswith(folder)) == ["00_start_here", "04_wanda"]
    lessons_given = {name.split("/")[2] for name in names if "/exercises/" in name}
    assert lessons_given == {"start", "wanda"}
    files = {Path(name).stem for name in names if name.startswith("course_lib/lessons/wanda/exercises/")}
    assert files == {"__init__", "common"} | {e.id.split(".")[1] for e in all_exercises() if e.id.startswith("wanda.")}
    rows = re.findall(r"^\| \[(\d\d)", (first_week / "README.md").read_text(), re.MULTILINE)
    assert rows == ["00", "04"]


def test_the_same_content_gives_the_same_bytes(first_week, tmp_path):
    again = make(tmp_path, ["04"])
    first, second = (folder.parent / "student.zip" for folder in (first_week, again))
    assert first.read_bytes() == second.read_bytes()


def course_of_one_lesson(root: Path) -> Path:
    (root / "solutions").mkdir()
    (root / "notebooks").mkdir()
    master = root / "solutions" / "04_wanda.py"
    master.write_text((masters.ROOT / "solutions" / "04_wanda.py").read_text())
    (root / "notebooks" / "04_wanda.ipynb").write_text(masters.as_text(masters.for_students(master)))
    (root / build.NAMES).parent.mkdir(parents=True)
    (root / build.NAMES).write_text((masters.ROOT / build.NAMES).read_text())
    return root


def test_outside_a_checkout_it_refuses(tmp_path):
    with pytest.raises(ValueError, match="has no masters in solutions/. A release is made from a checkout"):
        release.run(tmp_path / "a.zip", None, None, None, QUIET, tmp_path)
    course_of_one_lesson(tmp_path)
    with pytest.raises(ValueError, match="git cannot list the files of .* a release needs a git checkout"):
        release.run(tmp_path / "a.zip", None, None, None, QUIET, tmp_path)
    assert not (tmp_path / "a.zip").exists()


def test_a_notebook_that_is_out_of_date_is_refused(tmp_path, capsys):
    path = course_of_one_lesson(tmp_path) / "notebooks" / "04_wanda.ipynb"
    path.write_text(path.read_text().replace("magnitude", "size", 1))
    with pytest.raises(ValueError, match="is not what its master gives .* Run `course build`"):
        release.run(tmp_path / "a.zip", None, None, None, QUIET, tmp_path)
    assert "04_wanda.ipynb: differs" in capsys.readouterr().out
    assert not (tmp_path / "a.zip").exists()


def test_nothing_to_make_is_said(tmp_path):
    with pytest.raises(ValueError, match="got nothing to make; expected --out student.zip"):
        release.run(None, None, None, None, QUIET)


@pytest.mark.parametrize(
    ("name", "said"), [(".", "which is a folder; expected a file"), ("file/a.zip", "cannot be written")]
)
def test_where_no_zip_can_be_written_is_told(tmp_path, name, said):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=said):
        release.write_zip(tmp_path / name, {"a": b"a"})
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
