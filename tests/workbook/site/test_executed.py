"""Notebooks run once for each state of their code."""

import re
from functools import partial

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.workbook import masters
from course_lib.workbook.site import executed as module
from course_lib.workbook.site.depends import ROOT, depends
from course_lib.workbook.site.executed import drawn, executed, fingerprint


class Runner:
    """Gives every cell an output, and counts."""

    def __init__(self):
        self.n = 0

    def __call__(self, notebook):
        self.n += 1
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [new_output("stream", text=f"{self.n}: {cell.source}")]
        return None


def lesson(*sources, text="before"):
    return new_notebook(cells=[new_markdown_cell(text), *map(new_code_cell, sources)])


def printed(notebook):
    return [cell.outputs[0].text for cell in notebook.cells if cell.cell_type == "code"]


def test_a_changed_cell_runs_its_notebook_and_a_changed_sentence_runs_none(tmp_path):
    run = Runner()
    first, second = lesson("1 + 1"), lesson("2 + 2", "3")
    assert [executed(first, "00_a", tmp_path, run), executed(second, "01_b", tmp_path, run)] == [True, True]
    again = lesson("1 + 1", text="another sentence")
    assert not executed(again, "00_a", tmp_path, run)
    assert printed(again) == ["1: 1 + 1"]
    assert again.cells[0].source == "another sentence"
    changed = lesson("2 + 2", "4")
    assert executed(changed, "01_b", tmp_path, run)
    assert printed(changed) == ["3: 2 + 2", "3: 4"]
    assert run.n == 3
    assert len(list(tmp_path.iterdir())) == 2  # what was kept of the cell before the change is gone


FILES = {
    "lessons/wanda/tables.py": "from course_lib.pruning.wanda import score\nfrom course_lib.kv import policies",
    "lessons/wanda/exercises/score.py": "from course_lib.checking.cases import Case",
    "lessons/wanda/measured.json": "{}",
    "lessons/kv/measured.json": "{}",
    "pruning/__init__.py": "",
    "pruning/wanda.py": "def score():\n    import course_lib.models as m",
    "pruning/magnitude.py": "",
    "models.py": "",
    "checking/cases.py": "",
    "kv/policies/__init__.py": "",
    "kv/policies/window.py": "",
    "grading/engine.py": "",
}


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("lessons/wanda/tables.py", True),
        ("lessons/wanda/exercises/score.py", True),  # by its place
        ("lessons/wanda/measured.json", True),
        ("lessons/wanda/weights/new.safetensors", True),
        ("pruning/wanda.py", True),
        ("models.py", True),  # imported in a function of what is imported
        ("checking/cases.py", True),
        ("kv/policies/window.py", True),  # of a folder that is looked through
        ("kv/policies/a_new_one.py", True),
        ("pruning/magnitude.py", False),
        ("lessons/kv/measured.json", False),
        ("grading/engine.py", False),
    ],
)
def test_a_changed_file_runs_what_uses_it_and_nothing_else(tmp_path, name, used):
    for file, source in FILES.items():
        (tmp_path / "course_lib" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "course_lib" / file).write_text(source, encoding="utf-8")
    notebook = lesson("%matplotlib inline\nfrom course_lib.lessons.wanda import tables", "tables.show()")
    before = fingerprint(notebook, tmp_path)
    assert fingerprint(notebook, tmp_path) == before
    (tmp_path / "course_lib" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "course_lib" / name).write_text("changed = 1", encoding="utf-8")
    assert (fingerprint(notebook, tmp_path) != before) == used


def test_what_every_lesson_uses_is_seen():
    """Its library, its results, and the exercises that `check` finds, which no cell imports."""
    if not (ROOT / "solutions").is_dir():
        pytest.skip("a student's copy has no masters")
    for master in masters.masters([]):
        cells = [cell.source for cell in masters.for_students(master).cells if cell.cell_type == "code"]
        files = [path.relative_to(ROOT / "course_lib").as_posix() for path in depends(cells)]
        asked = {found for cell in cells for found in re.findall(r'check\("(\w+)\.(\w+)"', cell)}
        assert asked
        assert {"workbook/checks.py", *(f"lessons/{name}/exercises/{file}.py" for name, file in asked)} <= set(files)
        assert [file for file in files if file.startswith("lessons/") and file.endswith(".json")], master
        assert not [
            file for file in files if file.startswith(("grading/", "cli/", "workbook/site/", "workbook/decks/"))
        ]


CELL = (
    "An error occurred\n---\n1/0\n---\n\x1b[31mZeroDivisionError\x1b[39m  Traceback (most recent call last)\n"
    "\n\x1b[31mE\x1b[39m: by 0\n"
)


@pytest.mark.parametrize(("error", "said"), [(CELL, "E: by 0"), ("Kernel died\nsomewhere", "Kernel died")])
def test_a_cell_that_fails_stops_the_build_and_keeps_nothing(tmp_path, error, said):
    with pytest.raises(ValueError, match=f"so it has no page: {said}\n.*`course run 00_a --student` shows"):
        executed(lesson("1"), "00_a", tmp_path / "kept", lambda notebook: error)
    assert not (tmp_path / "kept").exists()


def test_a_fresh_run_replaces_what_was_kept_only_when_it_has_gone_well(tmp_path):
    run = Runner()
    executed(lesson("1"), "00_a", tmp_path, run)
    with pytest.raises(ValueError, match="00_a does not run"):
        executed(lesson("1"), "00_a", tmp_path, lambda notebook: "Kernel died", fresh=True)
    assert not executed(again := lesson("1"), "00_a", tmp_path, run)
    assert printed(again) == ["1: 1"]
    assert executed(lesson("1"), "00_a", tmp_path, run, fresh=True)
    assert run.n == 2


def test_a_deck_is_drawn_again_when_its_text_or_its_lesson_changes(tmp_path, monkeypatch):
    (lesson := tmp_path / "course_lib" / "lessons" / "wanda").mkdir(parents=True)
    (lesson / "deck.py").write_text("def scores(): pass")
    monkeypatch.setattr(module, "depends", partial(depends, root=tmp_path))
    deck, pages = tmp_path / "04_wanda.md", []

    def draw(path):
        pages.append(path)
        return f"page {len(pages)}"

    deck.write_text("# Wanda\n![a finding](figure:wanda.deck.scores)")
    assert [drawn(deck, tmp_path / "drawn", draw) for _ in range(2)] == ["page 1", "page 1"]
    (lesson / "measured.json").write_text("{}")
    assert drawn(deck, tmp_path / "drawn", draw) == "page 2"
    deck.write_text("# Wanda\n![another](figure:wanda.deck.scores)")
    assert drawn(deck, tmp_path / "drawn", draw) == "page 3"
    assert len(list((tmp_path / "drawn").iterdir())) == 1
