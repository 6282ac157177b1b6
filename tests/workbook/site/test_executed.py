"""Notebooks run once for each state of their code."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.workbook.site import executed as module
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


def test_a_changed_file_of_the_lesson_runs_what_uses_it(tmp_path):
    (tmp_path / "wanda").mkdir()
    (tmp_path / "kv").mkdir()
    notebook, other = lesson("from course_lib.lessons.wanda import tables"), lesson("1")
    before = fingerprint(notebook, tmp_path), fingerprint(other, tmp_path)
    (tmp_path / "kv" / "measured.json").write_text("{}")
    assert (fingerprint(notebook, tmp_path), fingerprint(other, tmp_path)) == before
    (tmp_path / "wanda" / "measured.json").write_text("{}")
    assert fingerprint(notebook, tmp_path) != before[0]
    assert fingerprint(other, tmp_path) == before[1]


def test_a_cell_that_fails_stops_the_build_and_keeps_nothing(tmp_path):
    with pytest.raises(ValueError, match="00_a does not run from top to bottom.*\nthe second cell fails"):
        executed(lesson("1"), "00_a", tmp_path / "kept", lambda notebook: "the second cell fails")
    assert not (tmp_path / "kept").exists()


def test_a_deck_is_drawn_again_when_its_text_or_its_lesson_changes(tmp_path, monkeypatch):
    (lesson := tmp_path / "lessons" / "wanda").mkdir(parents=True)
    monkeypatch.setattr(module, "LESSONS", tmp_path / "lessons")
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
