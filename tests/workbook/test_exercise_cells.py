"""What an exercise cell offers: a hint button, the next step, marks on old outputs; and the first and the last cell."""

import json
import os
import sys

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.cli import check_all as overview
from course_lib.grading.notebook.program import load
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook import check, check_all, checks, hints, masters, session, show, stale
from course_lib.workbook.catalogue import all_exercises, find
from course_lib.workbook.checks import CheckFailed
from course_lib.workbook.progress import Record
from course_lib.workbook.show import Surroundings

MASTERS = masters.masters()
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    for name in ("COURSE_STRICT", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(checks, "_newest", {})
    monkeypatch.setattr(stale, "_cells", {})


def right(weight, inputs):
    return weight.abs() * inputs.norm(dim=0)


def squared(weight, inputs):
    return weight.abs() * inputs.square().sum(dim=0)


def unwritten(weight, inputs):
    raise NotImplementedError


def broken(name):
    raise RuntimeError("broken")


# The first cell and the last one.


@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_every_notebook_begins_with_what_may_be_missing_and_ends_with_all_exercises(master):
    cells = masters.for_students(master).cells
    first = next(cell for cell in cells if cell.cell_type == "code")
    assert first.source.startswith("# Run this cell first")
    assert cells[-1].id == "check-all"
    assert cells[-1].source.endswith("import check_all\n\ncheck_all()")


def first_cell(root):
    (root / "solutions").mkdir()
    master = root / "solutions" / "98_made_up.py"
    master.write_text("# %%\nimport torch\n", encoding="utf-8")
    return masters.for_students(master).cells[0].source


def test_the_first_cell_says_what_to_run_where_the_library_is_missing(tmp_path, monkeypatch, capsys):
    source = first_cell(tmp_path)
    exec(source, {})
    assert capsys.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "course_lib", None)
    monkeypatch.delitem(sys.modules, "course_lib.workbook")
    with pytest.raises(ModuleNotFoundError, match=r"does not have the course's library.*%pip install -e \.\.$"):
        exec(source, {})


def test_a_published_course_is_installed_from_its_repository(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.course]\nrepository = "https://example.org/course"\n')
    assert "new cell and restart the kernel: %pip install git+https://example.org/course" in first_cell(tmp_path)


@pytest.mark.parametrize("master", MASTERS[:3], ids=lambda path: path.stem)
def test_both_cells_change_nothing_that_grading_runs(master, monkeypatch):
    def programs():
        notebook = load(masters.as_text(masters.with_solutions(master)).encode())
        names = {each.exercise: each.name for each in notebook.checks}
        return {name: notebook.program(name, function) for name, function in names.items()}, notebook.skipped

    def without_places(found):
        taken, skipped = found
        said = {name: (p.function, [s.source for s in p.statements], p.notes, p.uses) for name, p in taken.items()}
        return said, [(each.text, each.number) for each in skipped]

    with_both = without_places(programs())
    monkeypatch.setattr(masters, "_add_both_ends", lambda notebook, root: None)
    assert with_both == without_places(programs())
    assert with_both[0]


# The card.


def card(name, function):
    return checks._verdict(name, function)


@pytest.mark.parametrize(
    ("function", "surroundings", "said"),
    [
        (unwritten, Surroundings(), "Write the function above, run its cell, then run this one."),
        (squared, Surroundings(), "Look for this mistake in your function, correct it, then run its cell"),
        (lambda weight, inputs: weight, Surroundings(), "Find out why this case differs, correct the function"),
        (lambda weight, inputs: weight @ inputs, Surroundings(), "Find the line that raised it, correct the function"),
        (right, Surroundings(stale=(3, 7)), "Run [3] and [7] again, which used the course's function"),
        (right, Surroundings(), "Go on with the cells below: they now use your function."),
    ],
)
def test_the_next_step_is_one_sentence(function, surroundings, said):
    assert f"  Next step: {said}" in show.as_text(card("wanda.score", function), Record(), surroundings)


def test_after_an_answer_that_nothing_calls_comes_the_next_exercise_or_the_overview():
    verdict = card("start.sparsity", lambda tensor: (tensor == 0).double().mean().item())
    assert verdict.exercise.library is None
    shown = show.as_text(verdict, Record(), Surroundings(next_title="Next"))
    assert "Go on with the cells below. The next exercise is “Next”." in shown
    assert "check_all()" in show.as_text(verdict, Record())


def keep_rows_stub(score, sparsity):
    raise NotImplementedError("Exercise wanda.keep_rows: replace this line")


def test_an_answer_that_calls_an_unwritten_function_is_told_which(capsys):
    check("wanda.sequential", lambda first, second, inputs, sparsity: keep_rows_stub(first, sparsity))
    shown = " ".join(capsys.readouterr().out.split())
    assert "Not attempted" in shown
    assert "Your function calls the one of “Compare within each output”, which is not written yet." in shown
    check("wanda.keep_rows", keep_rows_stub)
    assert "Write the function above" in " ".join(capsys.readouterr().out.split())


def test_an_answer_that_was_not_right_is_run_again_because_a_helper_may_have_changed(monkeypatch):
    helper = {"norm": lambda inputs: inputs.square().sum(dim=0)}

    def score(weight, inputs):
        return weight.abs() * helper["norm"](inputs)

    exercise = find("wanda.score")
    check("wanda.score", score)
    assert checks.judged(exercise, score).state == "wrong"
    helper["norm"] = lambda inputs: inputs.norm(dim=0)
    assert checks.judged(exercise, score).state == "right"


def test_progress_in_the_lesson_follows_each_check(capsys):
    check("wanda.score", squared)
    n_points = sum(exercise.points for exercise in EXERCISES)
    progress = f"Progress: {{}} of {len(EXERCISES)} exercises, {{}} of {n_points} points in this lesson"
    assert progress.format(0, 0) in capsys.readouterr().out
    check("wanda.score", right)
    assert progress.format(1, find("wanda.score").points) in capsys.readouterr().out


def test_got_and_expected_are_numbers_or_not_there():
    exercise = find("wanda.score")
    verdict = card("wanda.score", squared)
    assert "Got: [[100, 3, 2, 100]," in show.as_text(verdict, Record())
    large = checks.Verdict(exercise, "wrong", 0, 5, verdict.case, torch.ones(40, 40), torch.ones(40, 40), ("here",))
    text = show.as_text(large, Record())
    assert "Got" not in text
    assert "Expected" not in text
    assert "Where: here" in text


def test_where_a_picture_shows_got_and_expected_they_are_not_written(monkeypatch):
    def keep_rows(score, sparsity):
        return score > score.quantile(sparsity, dim=1, keepdim=True)

    verdict = card("wanda.keep_rows", keep_rows)
    assert ">Got<" not in show.as_html(verdict, Record())
    assert "<img" in show.as_html(verdict, Record())
    assert "  Got: [[" in show.as_text(verdict, Record())
    monkeypatch.setattr(show, "_picture", lambda verdict: "")
    assert ">Got<" in show.as_html(verdict, Record())


def test_a_mistakes_name_is_in_the_value_so_that_labels_stay_short():
    markup = show.as_html(card("wanda.score", squared), Record())
    assert ">This looks like</td>" in markup
    assert "<b>squared norm.</b>" in markup


# The solution.


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_every_exercise_has_a_solution_to_unfold_in_a_checkout(exercise):
    source = masters.solution(exercise.id)
    compile(source, exercise.id, "exec")
    assert "def " in source
    assert "SOLUTION" not in source
    assert "NotImplementedError" not in source


def test_a_right_answer_unfolds_it_and_a_copy_without_masters_has_none(tmp_path, monkeypatch):
    assert masters.solution("wanda.score", tmp_path) == ""
    shown = []
    monkeypatch.setattr(show, "verdict", lambda verdict, record, surroundings, _: shown.append(surroundings.solution))
    check("wanda.score", squared)
    check("wanda.score", right)
    monkeypatch.setattr(masters, "solution", broken)
    check("wanda.score", right)
    assert [bool(solution) for solution in shown] == [False, True, False]
    markup = show.as_html(card("wanda.score", right), Record(), Surroundings(solution="def f(a):\n    return a < 1"))
    assert "<details><summary" in markup
    assert "return a &lt; 1" in markup


# Out of date.


def test_a_cell_that_used_the_courses_function_is_marked_until_it_runs_again(monkeypatch):
    cell, shown = ["a"], {}
    monkeypatch.setattr(session, "in_notebook", lambda: True)
    monkeypatch.setattr(session, "cell_id", lambda: cell[0])
    monkeypatch.setattr(session, "cell_number", lambda: ord(cell[0]) - 90)
    monkeypatch.setattr(show, "message", lambda text, display_id=None, update=False: shown.update({display_id: text}))
    for cell[0] in "ba":
        stale.used_the_courses("wanda.score", "with the course's")
    assert stale.mark("wanda.other", "Other") == ()
    assert set(shown.values()) == {"with the course's"}
    assert stale.mark("wanda.score", "The score") == (7, 8)
    assert all(text.startswith("Out of date: this cell used") and "“The score”" in text for text in shown.values())
    stale.uses_the_students("wanda.score")
    assert stale.mark("wanda.score", "The score") == (8,)


# Where a button can be pressed.


class Shell:
    """What IPython's shell is asked for."""

    def __init__(self, **names):
        self.user_ns = names


@pytest.mark.parametrize(
    ("server", "names", "expected"),
    [("", {}, False), ("/a/04_wanda.ipynb", {}, True), ("", {"__vsc_ipynb_file__": "/a/04.ipynb"}, True)],
)
def test_a_button_is_shown_where_somebody_can_press_it(server, names, expected, monkeypatch):
    monkeypatch.setattr(session, "in_notebook", lambda: True)
    monkeypatch.setattr(session, "shell", lambda: Shell(**names))
    monkeypatch.setenv("JPY_SESSION_NAME", server)
    assert session.has_widgets() is expected
    assert session.notebook_file() is None  # there is no such file
    monkeypatch.setattr(session, "in_notebook", lambda: False)
    assert session.has_widgets() is False


def test_a_frontend_that_fails_at_buttons_costs_no_verdict(monkeypatch, capsys):
    monkeypatch.setattr(hints, "button", broken)
    check("wanda.score", squared)
    assert capsys.readouterr().out.startswith("Not yet")


# All of them.


def test_all_exercises_in_one_table(capsys):
    check_all()
    assert "no check of this notebook has run yet" in capsys.readouterr().out
    answers = {
        "wanda.score": (right, "right"),
        "wanda.keep_rows": (lambda score, sparsity: torch.ones_like(score, dtype=torch.bool), "wrong"),
        "wanda.obs_score": (unwritten, "not attempted"),
    }
    for exercise, (answer, _) in answers.items():
        check(exercise, answer)
    capsys.readouterr()
    check_all()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("  ")[-1] == "2 of 2"
    states = ("right", "wrong", "not attempted", overview.NOT_RUN)
    rows, (summary, advice, *_) = lines[1 : 1 + len(EXERCISES)], lines[1 + len(EXERCISES) :]
    states = [next(state for state in states if f" {state} " in row) for row in rows]
    assert states == [answers.get(exercise.id, (None, overview.NOT_RUN))[1] for exercise in EXERCISES]
    assert summary.startswith(f"1 of {len(EXERCISES)} exercises are right, for {find('wanda.score').points}")
    assert "check-notebook" in advice


def test_in_strict_mode_all_of_them_have_to_be_right(monkeypatch, capsys):
    check("wanda.score", right)
    check("wanda.n_of_m", unwritten)
    check_all()
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(CheckFailed, match=r"^not right: wanda.n_of_m$"):
        check_all()
    del checks._newest["wanda.n_of_m"]
    check_all()
    monkeypatch.setattr(checks, "_newest", {})
    with pytest.raises(ValueError, match="run the checks"):
        check_all()


# In a kernel, as JupyterLab starts it.

PRESSED = """
from ipywidgets import Button, HTML
from ipywidgets.widgets.widget import _instances
of = lambda kind: [each for each in _instances.values() if type(each) is kind]
(press,), (shown,) = of(Button), of(HTML)
print(press.description, repr(shown.value))
press.click(); print(press.description, shown.value.count("Hint "))
press.click(); press.click(); press.click(); print(press.description, shown.value.count("Hint "))
"""
STEPS = {
    "imports": "from course_lib.workbook import check, mine",
    "answer": "def wanda_score(weight, inputs):\n    return weight.abs() * inputs.square().sum(dim=0)",
    "wrong": 'check("wanda.score", wanda_score)',
    "used": 'score = mine("wanda.score", wanda_score)',
    "pressed": PRESSED,
    "mended": "def wanda_score(weight, inputs):\n    return weight.abs() * inputs.norm(dim=0)",
    "right": 'check("wanda.score", wanda_score)',
    "all": "check_all()",
    "other": 'check("wanda.keep_rows", lambda weight, score, sparsity: weight)',
    "hint": 'from course_lib.workbook import hint\nhint("wanda.keep_rows")',
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of a notebook that lies where the frontend says, by the name of their step."""
    folder = tmp_path_factory.mktemp("kernel")
    path = folder / "04_wanda.ipynb"
    cells = [new_markdown_cell("A lesson"), *(new_code_cell(source, id=name) for name, source in STEPS.items())]
    notebook = new_notebook(cells=cells)
    nbformat.write(notebook, path)
    environment = os.environ | {"JPY_SESSION_NAME": str(path), "COURSE_HOME": str(folder / "home"), "COURSE_STRICT": ""}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", store_widget_state=False)
    client.execute(cwd=str(masters.ROOT), env=environment)
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def test_a_wrong_answer_has_a_button_and_in_place_of_it_nothing_where_there_are_no_widgets(outputs):
    card, button = outputs["wrong"]
    assert "Not yet" in card.data["text/plain"]
    assert 'hint("wanda.score")' in card.data["text/plain"]
    assert WIDGET in button.data
    assert (button.data["text/html"], button.data["text/plain"]) == ("<span></span>", "")
    assert [WIDGET in output.data for output in outputs["right"]] == [False]


def test_each_press_shows_one_more_hint_and_nothing_is_shown_before(outputs):
    said = "".join(output.text for output in outputs["pressed"])
    assert said.splitlines() == ["Hint 1 of 3 ''", "Hint 2 of 3 1", "All 3 hints 3"]


def test_the_card_of_a_check_offers_the_hint_after_those_that_were_shown(outputs):
    cards = {step: outputs[step][0].data for step in ("wrong", "other")}
    rows = {step: card["text/plain"].partition("  Hints: ")[2].splitlines()[0] for step, card in cards.items()}
    assert rows == {
        "wrong": 'All 3 hints were shown; hint("wanda.score") shows them again.',
        "other": 'hint("wanda.keep_rows") in a new cell shows hint 2 of 3.',
    }
    assert "shows hint 2 of 3." in cards["other"]["text/html"]


def test_once_the_students_own_function_is_right_the_cell_that_used_the_courses_is_marked(outputs):
    (used,) = outputs["used"]
    assert used.data["text/plain"].startswith("Out of date: this cell used the course's function for “The Wanda score”")
    assert "Run [4] again, which used the course's function" in outputs["right"][0].data["text/plain"]


def test_the_overview_says_what_grading_would_run(outputs):
    (shown,) = outputs["all"]
    text = shown.data["text/plain"]
    assert "wanda_score, from cell 7" in text  # the last one above its check, counted from 1 with the text
    assert "wanda_score is defined more than once (also in cell 3)" in text
    assert "04_wanda.ipynb was saved at" in text
    assert "<table>" in shown.data["text/html"]
    json.dumps(shown.data)
