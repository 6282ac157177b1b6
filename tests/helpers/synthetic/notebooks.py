"""Student notebooks as JSON, as an editor would write them, and answers filled in."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic.answers import Known, plainly

from course_lib.workbook.masters import ROOT

Notebook = dict[str, Any]
Style = Callable[[Known], str]


def blank(stem: str, root: Path = ROOT) -> Notebook:
    """The notebook of a lesson as students get it."""
    return json.loads((root / "notebooks" / f"{stem}.ipynb").read_text(encoding="utf-8"))


def as_bytes(notebook: Notebook) -> bytes:
    return json.dumps(notebook, indent=1, ensure_ascii=False).encode()


def code(text: str, rng: random.Random) -> dict[str, Any]:
    """A code cell that a student added."""
    cell = {"cell_type": "code", "execution_count": None, "id": f"{rng.getrandbits(32):08x}"}
    return cell | {"metadata": {}, "outputs": [], "source": lines(text)}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def answer_cells(notebook: Notebook) -> dict[str, dict[str, Any]]:
    """The cells meant for the answers, by exercise. Of copies, which share their metadata, the last."""
    return {cell["metadata"]["exercise"]: cell for cell in notebook["cells"] if "exercise" in cell["metadata"]}


def check_cell(notebook: Notebook, exercise: str) -> dict[str, Any]:
    return next(cell for cell in notebook["cells"] if text_of(cell).startswith(f'check("{exercise}"'))


def is_code(cell: dict[str, Any]) -> bool:
    return cell["cell_type"] == "code"


def place(notebook: Notebook, cell: dict[str, Any]) -> int:
    return next(i for i, candidate in enumerate(notebook["cells"]) if candidate is cell)


def fill(
    notebook: Notebook, answers: dict[str, Known], rng: random.Random, style: Style = plainly, apart: int | None = None
) -> None:
    """Write answers into the cells meant for them.

    Args:
        apart: before which cell the imports and helpers get one of their own, -1 for at the very end; when None they
            are with the answers.
    """
    shared: dict[str, None] = {}
    for exercise, cell in answer_cells(notebook).items():
        if exercise in answers:
            needs, written = answers[exercise].needs, style(answers[exercise])
            shared |= dict.fromkeys(needs)
            cell["source"] = lines(written if apart is not None else "\n\n".join([*needs, written]))
    if apart is not None and shared:
        position = apart if apart >= 0 else len(notebook["cells"])
        notebook["cells"].insert(position, code("\n\n".join(shared), rng))
