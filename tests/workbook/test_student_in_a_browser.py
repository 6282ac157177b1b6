"""A student in a browser: JupyterLab as `make lab` starts it, a lesson from top to bottom, answers wrong and right."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from browser import browser, needs_browser
from notebook_in_browser import Notebook, course_folder

from course_lib.cli import lab
from course_lib.workbook.masters import ROOT

TOKEN = "student"
WINDOW = {"viewport": {"width": 1400, "height": 1000}}
# Lesson, exercise, function, arguments, a wrong body, a right one, and arguments on which the function is used.
ANSWERS = (
    (
        *("04_wanda", "wanda.score", "wanda_score", "weight, inputs"),
        *("weight.abs() * inputs.square().sum(dim=0)", "weight.abs() * inputs.norm(dim=0)"),
        "torch.ones(2, 3), torch.ones(4, 3)",
    ),
    (
        *("07_kv_eviction", "kv.window", "window_keep", "position, budget"),
        *("position < position.sort(dim=-1).values[..., budget, None]",),
        *("position >= position.sort(dim=-1).values[..., -budget, None]",),
        "torch.tensor([[[5, 1, 2, 3]]]), 2",
    ),
)


def is_fault(said) -> bool:
    """An error on the browser's console. JupyterLab asks for language servers, and nobody is there to answer."""
    return said.type == "error" and "/lsp/status" not in said.location.get("url", "")


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """A page of a browser, the address of the server, and what went wrong in either."""
    folder = course_folder(tmp_path_factory.mktemp("student"), ROOT, ("00", "04", "07"))
    patch = pytest.MonkeyPatch()
    patch.setenv("COURSE_HOME", str(folder / "home"))
    patch.setenv("OMP_NUM_THREADS", "1")
    start = lab.command
    patch.setattr(lab, "command", lambda *where: [*start(*where), "--LabApp.expose_app_in_browser=True"])
    log = (folder / "said.log").open("w", encoding="utf-8")
    popen = partial(subprocess.Popen, stderr=log)
    patch.setattr(lab, "subprocess", SimpleNamespace(Popen=popen, TimeoutExpired=subprocess.TimeoutExpired))
    port = lab.free_port(8950)
    with log, lab.server_on(port, TOKEN, folder) as server, browser() as chromium:
        assert lab.wait_until_up(server, port)
        page, faults = chromium.new_page(**WINDOW), []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(f"{said.text} {said.location}") if is_fault(said) else None)
        yield page, f"http://127.0.0.1:{port}", faults, folder
    patch.undo()


@needs_browser
def test_the_first_lesson_runs_from_top_to_bottom_and_nothing_is_asked(student):
    page, address, faults, folder = student
    notebook = Notebook(page, address, "notebooks/00_start_here.ipynb", TOKEN)
    assert page.query_selector(".jp-Dialog") is None
    notebook.run_all()
    assert notebook.errors() == []
    assert "Not attempted" in notebook.shown(notebook.index('check("start.sparsity"'))
    assert notebook.picture() is not None
    assert faults == []
    assert (folder / "said.log").read_text() == ""  # in the terminal, where no student looks for trouble


@needs_browser
@pytest.mark.parametrize(
    ("lesson", "name", "function", "arguments", "wrong", "right", "given"), ANSWERS, ids=[each[1] for each in ANSWERS]
)
def test_an_exercise_goes_from_its_stub_over_a_wrong_answer_and_a_hint_to_a_right_one(
    student, lesson, name, function, arguments, wrong, right, given
):
    page, address, faults, folder = student
    notebook = Notebook(page, address, f"notebooks/{lesson}.ipynb", TOKEN)
    imports, answer, asked = 1, notebook.index(f"def {function}("), notebook.index(f'check("{name}"')
    source = f"def {function}({arguments}):\n    return "
    assert "Traceback" not in notebook.run(imports)
    notebook.run(answer)
    assert "Not attempted" in notebook.run(asked)
    notebook.run(answer, source + wrong)
    said = notebook.run(asked)
    assert "Not yet" in said
    assert "looks like" in said
    page.get_by_role("button", name=re.compile("Hint 1 of")).last.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=/^Hint 1 of [23]: ./", timeout=60_000)
    assert "Hint 2" in notebook.append(f'hint("{name}")')
    assert "With the course" in notebook.append(f'used = mine("{name}", {function})')
    notebook.run(answer, source + right)
    said = notebook.run(asked)
    assert "Right" in said
    assert "again, which used the course" in said
    assert "Out of date" in notebook.shown(notebook.index(f'used = mine("{name}"'))
    notebook.restart()
    notebook.run(imports)
    notebook.run(answer)
    assert "Right" in notebook.run(asked)
    used = notebook.append(f'mine("{name}", {function})({given})')
    assert "your function" in used
    assert "tensor" in used
    assert "right" in notebook.run(notebook.index("check_all()"))
    code = "import sys; sys.argv = ['course', 'progress']; from course_lib.cli.app import main; main()"
    line = [sys.executable, "-c", code]
    told = subprocess.run(line, capture_output=True, text=True, env=os.environ, check=True).stdout
    assert lesson[:2] in told
    assert json.loads((folder / "home" / "progress.json").read_text())[name]["solved"]
    assert notebook.errors() == []
    assert faults == []


@needs_browser
def test_a_slider_that_moves_changes_what_is_drawn(student):
    page, address, faults, _ = student
    notebook = Notebook(page, address, "notebooks/07_kv_eviction.ipynb", TOKEN)
    said = notebook.append(
        "from course_lib.lessons.patterns.widgets import explore\n"
        "from course_lib.models import tiny_model\n"
        "controls = explore(tiny_model())"
    )
    assert "Traceback" not in said
    page.wait_for_selector(".noUi-handle", timeout=60_000)
    before = notebook.picture().get_attribute("src")
    page.query_selector_all(".noUi-handle")[-1].focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => [...document.querySelectorAll('.jp-OutputArea-output img')].at(-1).src !== before",
        arg=before,
        timeout=60_000,
    )
    assert faults == []
