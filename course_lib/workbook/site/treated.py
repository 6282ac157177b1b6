"""Prepare an executed notebook for Sphinx: figures with alternative text, folded code, no live widgets."""

import copy
import html
import re

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib.workbook.decks.markdown import mathematics

FOLDED = "hide-input"
_IMAGE = re.compile(r'^<img alt="([^"]*)"')
_WIDGET = "application/vnd.jupyter.widget-view+json"
_BAR = "Output()"  # progress bars of rich; all other widgets control a picture
_KEPT = re.compile(r"Stored in [^<]*?progress\.json")  # a path on the machine that made the page
_QUESTION = re.compile(r"<summary>.*?</summary>", re.DOTALL)
_FORMULA = re.compile(r"\$([^$]+)\$")
_MARKUP = re.compile(r"<(?!img|svg)[^>]*>")
_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


def treated(notebook: NotebookNode, solutions: NotebookNode | None = None) -> NotebookNode:
    """Make a copy for the page. Cells of imports are folded, and each figure gets its alternative text.

    Args:
        solutions: the master as a notebook; if given, the folded solution follows each exercise.
    """
    answers = (
        {cell.metadata["exercise"]: cell for cell in solutions.cells if "exercise" in cell.metadata}
        if solutions
        else {}
    )
    page = copy.deepcopy(notebook)
    cells: list[NotebookNode] = []
    for cell in page.cells:
        cells += _split(cell) if cell.cell_type == "code" else [_formulas(cell)]
        if answer := answers.get(cell.metadata.get("exercise")):
            cells.append(_cell(answer.source, FOLDED))
    page.cells = cells
    page.metadata.pop("widgets", None)  # otherwise the page would fetch scripts
    return page


def _formulas(cell: NotebookNode) -> NotebookNode:
    """Convert formulas in the question of a folded answer: it is HTML, which Markdown does not parse."""

    def drawn(question: re.Match) -> str:
        return _FORMULA.sub(lambda formula: mathematics(formula[1], "inline"), question[0])

    cell.source = _QUESTION.sub(drawn, cell.source)
    return cell


def _cell(source: str, *tags: str) -> NotebookNode:
    cell = new_code_cell(source)
    cell.metadata = NotebookNode(tags=list(tags))
    return cell


def _split(cell: NotebookNode) -> list[NotebookNode]:
    """Give each further figure a cell of its own, because a cell has one alternative text for all its figures."""
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    first = _cell(cell.source, *([FOLDED] if folded else []))
    first.id, first.execution_count = cell.id, cell.execution_count
    parts, live = [first], []
    for output in cell.get("outputs", []):
        if _WIDGET in (data := output.get("data", {})) and data.get("text/plain") != _BAR:
            live.append(data.get("text/plain", "")[:80])
        shown, text = _output(output)
        if shown is None:
            continue
        before = parts[-1].outputs[-1] if parts[-1].outputs else NotebookNode(output_type=None)
        if output.output_type == before.output_type == "stream" and output.name == before.name:
            before.text += output.text  # printed a moment later by the same cell
            continue
        if (text is not None and parts[-1].outputs) or "mystnb" in parts[-1].metadata:
            parts.append(_cell("#", "remove-input"))  # without a source the cell would be left out
        if text is not None:
            parts[-1].metadata["mystnb"] = {"image": {"alt": text}}
        parts[-1].outputs.append(shown)
    if live and not any(output.get("data") for part in parts for output in part.outputs):
        raise ValueError(
            f"got a widget without a static picture: {live[0]}; expected one below its controls, "
            "as a DisplayHandle shows it."
        )
    return parts


def _output(output: NotebookNode) -> tuple[NotebookNode | None, str | None]:
    """Return the part of an output to show, and the alternative text of a figure. Widgets need a kernel and are left
    out; their static picture is a separate output, which stays."""
    data = output.get("data", {})
    bar = "text/html" in data and "image/png" not in data and not _MARKUP.sub("", data["text/html"]).strip()
    if _WIDGET in data or bar:  # a finished progress bar leaves an empty frame
        return None, None
    for said, key in ((data, "text/html"), (data, "text/plain"), (output, "text")):
        if key in said:
            said[key] = _KEPT.sub("Stored in progress.json", said[key])
    if output.output_type == "error":
        output.traceback = [_TERMINAL.sub("", line) for line in output.traceback]
    if "image/png" not in data:
        return output, None
    output.data = NotebookNode({"image/png": data["image/png"]})
    if not (found := _IMAGE.match(data.get("text/html", ""))):
        raise ValueError(
            f"got a figure without alternative text: {data.get('text/plain', '')[:80]}; expected a HouseFigure."
        )
    return output, html.unescape(found[1])
