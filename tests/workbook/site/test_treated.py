"""Executed notebooks as pages show them."""

import re

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.workbook.site.treated import treated


def picture(alternative):
    data = {"image/png": "iVBORw0K", "text/html": f'<img alt="{alternative}" style="x" src="data:">'}
    return new_output("execute_result", data=data | {"text/plain": "<HouseFigure>"})


def cell(*outputs, source="f()", **metadata):
    made = new_code_cell(source, outputs=list(outputs))
    made.metadata.update(metadata)
    return made


def page(*cells, solutions=None):
    return treated(new_notebook(cells=list(cells)), solutions).cells


def alternatives(cells):
    return [c.metadata.get("mystnb", {}).get("image", {}).get("alt") for c in cells]


def test_every_figure_has_its_own_text_whatever_stands_beside_it():
    said = new_output("stream", text="a line")
    cells = page(cell(picture("one &lt; two"), said, picture("three")))
    assert alternatives(cells) == ["one < two", None, "three"]
    assert [c.source for c in cells] == ["f()", "#", "#"]
    assert [c.metadata["tags"] for c in cells] == [[], ["remove-input"], ["remove-input"]]
    assert [len(c.outputs) for c in cells] == [1, 1, 1]
    assert list(cells[0].outputs[0].data) == ["image/png"]


def test_a_figure_without_text_stops_the_build():
    bare = new_output("display_data", data={"image/png": "iVBORw0K", "text/plain": "<Figure size 640x480>"})
    with pytest.raises(ValueError, match="without alternative text: <Figure size 640x480>"):
        page(cell(bare))


def test_widgets_leave_and_their_static_picture_stays():
    widget = new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}, "text/plain": "VBox()"})
    (only,) = page(cell(widget, picture("gamma .95")))
    assert [list(output.data) for output in only.outputs] == [["image/png"]]


def test_the_state_of_widgets_does_not_bring_their_scripts_from_elsewhere():
    notebook = new_notebook(cells=[], metadata={"widgets": {"application/vnd.jupyter.widget-state+json": {}}})
    assert treated(notebook).metadata == {}
    assert notebook.metadata


def test_a_widget_without_a_static_picture_stops_the_build():
    def widget(text):
        return new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}, "text/plain": text})

    with pytest.raises(ValueError, match="without a static picture: VBox"):
        page(cell(new_output("stream", text="a line"), widget("VBox(children=())")))
    assert page(cell(widget("Output()")))[0].outputs == []  # a bar of progress leaves nothing behind


def test_what_a_bar_of_progress_leaves_behind_is_left_out():
    gone = new_output("display_data", data={"text/html": '<pre style="x">\n</pre>', "text/plain": ""})
    kept = new_output("display_data", data={"text/html": "<pre>kept</pre>", "text/plain": "kept"})
    assert [output.data["text/plain"] for output in page(cell(gone, kept, gone))[0].outputs] == ["kept"]


def test_what_is_printed_in_two_moments_is_one_output():
    (only,) = page(cell(new_output("stream", text="a\n"), new_output("stream", text="b\n")))
    assert [output.text for output in only.outputs] == ["a\nb\n"]


def test_imports_are_folded_and_solutions_stand_folded_under_their_exercise():
    imports = cell(source="import a\nimport b", jupyter={"source_hidden": True})
    stub = cell(source="def f(): raise NotImplementedError", exercise="kv.slots")
    answer = new_notebook(cells=[cell(source="def f(): return 1", exercise="kv.slots")])
    cells = page(imports, new_markdown_cell("text"), stub, solutions=answer)
    assert [c.source for c in cells][2:] == ["def f(): raise NotImplementedError", "def f(): return 1"]
    assert [c.metadata.get("tags") for c in cells] == [["hide-input"], None, [], ["hide-input"]]
    assert "return 1" not in "".join(c.source for c in page(imports, stub))


def test_the_notebook_itself_stays_as_it_is():
    notebook = new_notebook(cells=[cell(picture("one"))])
    treated(notebook)
    assert "text/html" in notebook.cells[0].outputs[0].data


def test_where_a_machine_keeps_the_progress_is_its_own_business():
    shown = {
        "text/html": "<i>Stored in /home/a/\nb/progress.json </i>",
        "text/plain": "Stored in /home/a/progress.json",
    }
    printed = new_output("stream", text="Stored in C:\\a\\progress.json")
    table, line = page(cell(new_output("display_data", data=shown), printed))[0].outputs
    assert table.data == {"text/html": "<i>Stored in progress.json </i>", "text/plain": "Stored in progress.json"}
    assert line.text == "Stored in progress.json"


def test_a_formula_in_the_question_of_a_folded_answer_is_drawn():
    (only,) = page(new_markdown_cell("<details><summary>Adds $e^0$ what?</summary>\n\nIt costs $5.\n\n</details>"))
    assert re.search(r"<summary>Adds <math.*<msup>.*</math> what\?</summary>", only.source)
    assert "$5" in only.source


def test_no_page_fetches_scripts_for_the_widgets_of_a_notebook_that_was_run_just_now():
    """Sphinx finds what drives them by this entry, which a notebook that was kept does not have."""
    notebook = new_notebook(cells=[cell(picture("One title"))])
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    assert "widgets" not in treated(notebook).metadata
    assert "widgets" in notebook.metadata
