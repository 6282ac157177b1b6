"""`course start`: lessons in a student's folder, from a package too, and nothing that was written is lost."""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import nbformat
import pytest

from course_lib.cli import app, claims, reproduce, start
from course_lib.workbook import build, folders, lookup, masters

WANDA = "04_wanda.ipynb"


def edited(path, text):
    """What a student's editor does: another source, and the file written anew."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].source = text
    nbformat.write(notebook, path)


def newer(packaged, text):
    """A later version of the course: another sentence, and the fingerprint of it."""
    notebook = nbformat.read(packaged / WANDA, as_version=4)
    notebook.cells[0].source = text
    notebook.metadata["course"]["fingerprint"] = masters.fingerprint(notebook)
    (packaged / WANDA).write_text(masters.as_text(notebook), encoding="utf-8")


@pytest.fixture
def packaged(tmp_path):
    """One lesson as it came, and a copy that a student made beside it, which is no lesson."""
    folder = tmp_path / "packaged"
    folder.mkdir()
    shutil.copy(folders.PACKAGED / WANDA, folder)
    shutil.copy(folders.PACKAGED / WANDA, folder / "04_wanda.mine-1.ipynb")
    return folder


def test_lessons_are_copied_once_and_what_was_run_stays(tmp_path, packaged):
    mine = tmp_path / "a new" / "folder"
    assert start.lay_out(mine, packaged) == {WANDA: start.NEW}
    assert [path.name for path in (mine / "notebooks").iterdir()] == [WANDA]
    notebook = nbformat.read(mine / "notebooks" / WANDA, as_version=4)
    next(cell for cell in notebook.cells if cell.cell_type == "code").outputs = [
        nbformat.v4.new_output("stream", text="ran")
    ]
    nbformat.write(notebook, mine / "notebooks" / WANDA)
    assert start.lay_out(mine, packaged) == {WANDA: start.THERE}
    assert "ran" in (mine / "notebooks" / WANDA).read_text(encoding="utf-8")


def test_a_newer_version_replaces_what_nobody_wrote_in(tmp_path, packaged):
    start.lay_out(tmp_path, packaged)
    newer(packaged, "# a later edition")
    assert start.lay_out(tmp_path, packaged) == {WANDA: start.RENEWED}
    assert "a later edition" in (tmp_path / "notebooks" / WANDA).read_text(encoding="utf-8")


@pytest.mark.parametrize("later", [False, True])
def test_what_a_student_wrote_is_never_replaced(tmp_path, packaged, later):
    start.lay_out(tmp_path, packaged)
    mine = tmp_path / "notebooks" / WANDA
    edited(mine, "my own answer")
    if later:
        newer(packaged, "# a later edition")
    assert start.lay_out(tmp_path, packaged) == {WANDA: start.YOURS if later else start.THERE}
    assert "my own answer" in mine.read_text(encoding="utf-8")
    mine.write_text("half of a file", encoding="utf-8")
    assert start.lay_out(tmp_path, packaged) == {WANDA: start.YOURS}
    assert mine.read_text(encoding="utf-8") == "half of a file"


def test_a_folder_that_cannot_be_made_is_said(tmp_path, packaged, monkeypatch):
    monkeypatch.setattr(start.Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "denied")))
    with pytest.raises(ValueError, match=r"which cannot be made \(denied\); expected a folder that you may write to"):
        start.lay_out(tmp_path / "mine", packaged)


def test_a_file_in_the_way_and_a_course_without_lessons_are_said(tmp_path, packaged):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notebooks").write_text("mine", encoding="utf-8")
    for place, file in (("file", "file"), ("file/below", "file"), ("other", "other/notebooks")):
        with pytest.raises(ValueError, match=f"where the file {tmp_path / file} is in the way; name another folder"):
            start.lay_out(tmp_path / place, packaged)
    with pytest.raises(ValueError, match="got no notebooks in .*nothing"):
        start.lay_out(tmp_path, tmp_path / "nothing")


def test_a_folder_named_like_a_lesson_is_said_before_anything_is_written(tmp_path, packaged):
    (folder := tmp_path / "notebooks" / WANDA).mkdir(parents=True)
    shutil.copy(packaged / WANDA, packaged / "03_sparsegpt.ipynb")
    with pytest.raises(ValueError, match=f"where the folder {folder} is in the way of a notebook; rename it"):
        start.lay_out(tmp_path, packaged)
    assert list((tmp_path / "notebooks").iterdir()) == [folder]


def test_a_code_page_that_lacks_a_character_stops_nothing(tmp_path, monkeypatch):
    """Windows gives one to whatever is written into a file or a pipe."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr(sys, "argv", ["course", "start", str(tmp_path / "Ελλάδα ∑"), "--no-serve"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    printed.flush()
    assert (ended.value.code, "The lessons are in" in printed.buffer.getvalue().decode("cp1252")) == (0, True)


def test_what_opens_the_lessons_depends_on_where_one_is(tmp_path):
    assert folders.to_open(folders.CODE) == "course lab"
    assert folders.to_open(tmp_path) == "course start FOLDER"
    (tmp_path / "notebooks").mkdir()
    (tmp_path / folders.FIRST).touch()
    assert folders.to_open(tmp_path) == "course lab"


def test_what_needs_masters_says_so(tmp_path):
    with pytest.raises(ValueError, match="has no masters; run this command in a checkout"):
        build.run(root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_package_cannot_do_is_said(tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match="got 00, but there are no lessons here; go to the folder of `course start FOLDER`"
    ):
        lookup.chosen(["00"], [])
    monkeypatch.setattr(claims, "PATH", tmp_path / "docs" / "claims.md")
    with pytest.raises(ValueError, match="got no folder .*docs; run this command in a checkout"):
        claims.run()
    monkeypatch.setattr(reproduce, "LIBRARY", tmp_path / "course_lib")
    monkeypatch.setattr(reproduce, "committed", lambda name: tmp_path / "course_lib" / f"{name}.json")
    monkeypatch.setattr(reproduce, "find", lambda name: SimpleNamespace(sizes=None))
    with pytest.raises(ValueError, match="got no --out; outside a checkout, name a file .* --out wanda.json"):
        reproduce.run("wanda")


def built(folder):
    """The wheel of this tree, as anybody would build it; what is built from a copy leaves nothing behind here."""
    listed = ["git", "-C", str(folders.CODE), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (folders.CODE / name).is_file() and not name.startswith(("tests/", "solutions/", "slides/")):
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folders.CODE / name, folder / "tree" / name)
    left = folder / "tree" / "build" / "lib" / "course_lib" / "was_removed.py"  # by a build of an earlier version
    left.parent.mkdir(parents=True)
    left.touch()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", str(folder), str(folder / "tree")], check=True)
    (wheel,) = folder.glob("*.whl")
    wanted = {name for name in names if name.startswith("course_lib/")}
    return wheel, wanted | {f"course_lib/{name}" for name in names if name.startswith(("kernels/", "notebooks/"))}


def test_a_student_needs_nothing_that_windows_lacks():
    """As far as a machine with POSIX calls can show: every module is imported without them, and the doctor goes on."""
    done = without_posix()
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_grading_says_which_system_it_needs(tmp_path, packaged):
    done = without_posix("grade", str(packaged), "--lesson", "04", "--out", str(tmp_path / "grades"))
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    assert done.stderr == "error bubblewrap needs Linux. The students' code is not run without it.\n"
    assert not (tmp_path / "grades").exists()


def without_posix(*arguments):
    """What the helper of this name prints, given these arguments of `course` if any."""
    line = [sys.executable, folders.CODE / "tests" / "helpers" / "without_posix.py", *arguments]
    environment = os.environ | {"PYTHONPATH": str(folders.CODE)}
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


A_KERNEL = """
import torch
from course_lib.kernels.weights import wanda_mask as kernel
given = kernel.example(torch.Generator().manual_seed(0), torch.float32, "cpu", **kernel.CASES[0])
print(torch.equal(kernel.launch(*given).weight, kernel.reference(*given).weight), kernel.__file__)
"""


def test_the_wheel_alone_has_all_and_its_command_works_where_there_is_no_checkout(tmp_path):
    if not (masters.ROOT / "solutions").is_dir():
        pytest.skip("a student's copy is no git checkout")
    wheel, wanted = built(tmp_path)
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        archive.extractall(installed)  # what pip does with a wheel of Python alone, scripts aside
    assert inside == wanted
    # Hugging Face owns the import name `kernels`, and transformers imports it where it is installed.
    assert {name.split("/")[0] for name in inside} == {"course_lib"}
    empty.mkdir()
    environment = os.environ | {"PYTHONPATH": str(installed), "COURSE_HOME": str(tmp_path / "home")}

    def course(*arguments, where=empty):
        code = "from course_lib.cli.app import main; main()"
        line = [sys.executable, "-c", code, *arguments]
        return subprocess.run(line, cwd=where, env=environment, capture_output=True, text=True, check=False)

    line = [sys.executable, "-c", A_KERNEL]
    interpreted = environment | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # the kernel, not its reference
    ran = subprocess.run(line, cwd=empty, env=interpreted, capture_output=True, text=True, check=False)
    expected = ["True", str(installed / "course_lib" / "kernels" / "weights" / "wanda_mask.py")]
    assert ran.stdout.split() == expected, ran.stderr
    assert "Nothing attempted yet. Start with: course start FOLDER" in course("progress").stdout
    told = course("start", "mine", "--no-serve")
    assert told.returncode == 0, told.stderr
    notebooks = sorted(path.name for path in (empty / "mine" / "notebooks").iterdir())
    assert notebooks == sorted(path.name for path in folders.PACKAGED.glob("[0-9]*.ipynb") if ".mine-" not in path.name)
    assert [path.name for path in empty.iterdir()] == ["mine"]
    first = empty / "mine" / "notebooks" / "00_start_here.ipynb"
    notebook = json.loads(first.read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["metadata"].get("exercise") == "start.sparsity"]
    cell["source"] = "def sparsity(tensor):\n    return (tensor == 0).double().mean().item()"
    first.write_text(json.dumps(notebook), encoding="utf-8")
    assert "right         start.sparsity" in course("check-notebook", str(first)).stdout
    for command in ("slides", "site"):
        refused = course(command, where=empty / "mine")
        assert (refused.returncode, refused.stdout) == (1, ""), refused.stdout
        assert "run this command in a checkout of the course." in refused.stderr.splitlines()[-1]
    assert [path.name for path in (empty / "mine").iterdir()] == ["notebooks"]
