"""From an executed notebook to one that Sphinx shows well: figures with their text, folded code, no live widgets."""

import copy
import html
import re

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib.workbook.decks.markdown import mathematics

FOLDED = "hide-input"
_IMAGE = re.compile(r'^<img alt="([^"]*)"')
_WIDGET = "application/vnd.jupyter.widget-view+json"
_BAR = "Output()"  # what rich draws its bars of progress in; all other widgets are controls of a picture
_KEPT = re.compile(r"Kept in [^<]*?progress\.json")  # where, on the machine that made the page
_QUESTION = re.compile(r"<summary>.*?</summary>", re.DOTALL)
_FORMULA = re.compile(r"\$([^$]+)\$")
_MARKUP = re.compile(r"<(?!img|svg)[^>]*>")
_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


def treated(notebook: NotebookNode, solutions: NotebookNode | None = None) -> NotebookNode:
    """A copy for the page. Cells of imports are folded; each figure has the text that the house style gives it.

    Args:
        solutions: the master as a notebook; each exercise is then followed by its solution, folded.
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
    page.metadata.pop("widgets", None)  # of a notebook that was run just now: for them a page would fetch scripts
    return page


def _formulas(cell: NotebookNode) -> NotebookNode:
    """The question of a folded answer is HTML, in which no reader of Markdown looks for formulas."""

    def drawn(question: re.Match) -> str:
        return _FORMULA.sub(lambda formula: mathematics(formula[1], "inline"), question[0])

    cell.source = _QUESTION.sub(drawn, cell.source)
    return cell


def _cell(source: str, *tags: str) -> NotebookNode:
    cell = new_code_cell(source)
    cell.metadata = NotebookNode(tags=list(tags))
    return cell


def _split(cell: NotebookNode) -> list[NotebookNode]:
    """The cell, and for each figure after its first output one of its own: a cell has one text for all its figures."""
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
            before.text += output.text  # printed a moment later
            continue
        if (text is not None and parts[-1].outputs) or "mystnb" in parts[-1].metadata:
            parts.append(_cell("#", "remove-input"))  # without a source it would be left out
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
    """What is shown of an output, and the alternative text if it is a figure. Widgets need a kernel: their static
    picture is an output of its own, and stays."""
    data = output.get("data", {})
    bar = "text/html" in data and "image/png" not in data and not _MARKUP.sub("", data["text/html"]).strip()
    if _WIDGET in data or bar:  # a bar of progress that has gone leaves an empty frame
        return None, None
    for said, key in ((data, "text/html"), (data, "text/plain"), (output, "text")):
        if key in said:
            said[key] = _KEPT.sub("Kept in progress.json", said[key])
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
