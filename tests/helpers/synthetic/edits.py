"""Changes to notebooks on the way to the instructor: cells moved, copied, merged, stripped; far too much around.

Every edit changes a notebook in place, and none changes what its functions do.
"""

import base64
import copy
import random
import re
import uuid
from typing import Any

from synthetic.notebooks import (
    Notebook,
    answer_cells,
    blank,
    check_cell,
    code,
    is_code,
    lines,
    place,
    text_of,
)


def reordered(notebook: Notebook, rng: random.Random) -> None:
    """The cells of the answers change places among themselves; the checks stay."""
    cells = list(answer_cells(notebook).values())
    places = [place(notebook, cell) for cell in cells]
    rng.shuffle(cells)
    for position, cell in zip(places, cells, strict=True):
        notebook["cells"][position] = cell


def moved_to_the_end(notebook: Notebook, rng: random.Random) -> None:
    cell = rng.choice(list(answer_cells(notebook).values()))
    notebook["cells"].append(notebook["cells"].pop(place(notebook, cell)))


def stripped_by_colab(notebook: Notebook, rng: random.Random) -> None:
    """Ids and metadata are Colab's own; the version of the format goes back to 4.0."""
    for cell in notebook["cells"]:
        cell.pop("id", None)
        cell["metadata"] = {"id": "".join(rng.choices("abcXYZ0123456789_-", k=12))}
        if cell["cell_type"] == "code":
            cell["metadata"]["colab"] = {"base_uri": "https://localhost:8080/", "height": 35}
            cell["metadata"]["outputId"] = str(uuid.UUID(int=rng.getrandbits(128)))
    notebook["metadata"] = {
        "colab": {"provenance": [], "toc_visible": True},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
    }
    notebook["nbformat_minor"] = 0


def merged(notebook: Notebook, rng: random.Random) -> None:
    """The first answer and its check are taken into the cell of the second, as "merge cells" leaves them: one id."""
    first, second = [place(notebook, cell) for cell in answer_cells(notebook).values()][:2]
    kept = notebook["cells"][first]
    kept["source"] = lines("\n\n".join(text_of(c) for c in notebook["cells"][first : second + 1] if is_code(c)))
    del notebook["cells"][first + 1 : second + 1]


def renamed(notebook: Notebook, rng: random.Random) -> None:
    """Another name for every function, in its check too."""
    for exercise, cell in answer_cells(notebook).items():
        check = check_cell(notebook, exercise)
        usual = _checked(check)
        for edited in (cell, check):
            _rename(edited, usual, f"my_{usual}")


def renamed_in_the_def_alone(notebook: Notebook, rng: random.Random) -> None:
    for exercise, cell in answer_cells(notebook).items():
        usual = _checked(check_cell(notebook, exercise))
        _rename(cell, usual, f"version_two_of_{usual}")


def _checked(check: dict[str, Any]) -> str:
    """The name of the function that a check is given."""
    return re.search(r"(\w+)\)\s*$", text_of(check))[1]


def _rename(cell: dict[str, Any], old: str, new: str) -> None:
    """Everywhere but in the id of the exercise, which may end in the same word."""
    cell["source"] = lines(re.sub(rf'(?<![".])\b{old}\b(?![".])', new, text_of(cell)))


def outputs_of_megabytes(notebook: Notebook, rng: random.Random) -> None:
    """Figures and a log, as a notebook that was run carries them."""
    figure = base64.b64encode(rng.randbytes(3_000_000)).decode()
    shown = {"data": {"image/png": figure, "text/plain": ["<Figure>"]}, "metadata": {}, "output_type": "display_data"}
    log = {"name": "stderr", "output_type": "stream", "text": ["\r 10%|█         | 1/10"] * 50_000}
    ran = [cell for cell in notebook["cells"] if is_code(cell)]
    ran[-1]["outputs"], ran[-1]["execution_count"] = [shown, log], 7
    ran[0]["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["x" * 2_000_000]}]


def experiments(notebook: Notebook, rng: random.Random) -> None:
    """Cells that would run for hours, leave files or end the kernel, if the notebook were run."""
    for text in (
        "while True:\n    pass",
        "import time\nfor hour in range(100):\n    time.sleep(3600)",
        'with open("left_behind.txt", "w") as file:\n    file.write("here")',
        "raise SystemExit",
        'raise RuntimeError("an experiment that failed")',
    ):
        _insert(notebook, text, rng)


def _insert(notebook: Notebook, text: str, rng: random.Random) -> None:
    notebook["cells"].insert(rng.randint(2, len(notebook["cells"])), code(text, rng))


def magics(notebook: Notebook, rng: random.Random) -> None:
    """What only IPython understands, in a cell of its own and in those of the answers."""
    for cell in answer_cells(notebook).values():
        head = rng.choice(["%%time\n", "%matplotlib inline\n", "!pip install einops\n", "%load_ext autoreload\n"])
        cell["source"] = lines(head + text_of(cell))
    notebook["cells"].insert(1, code("!nvidia-smi\n%pip install torch\nfiles = !ls\nprint(files)", rng))


def syntax_error_elsewhere(notebook: Notebook, rng: random.Random) -> None:
    _insert(notebook, "for layer in model\n    print(layer)", rng)


def missing_package(notebook: Notebook, rng: random.Random) -> None:
    """An import that fails, in every cell with an answer."""
    for cell in answer_cells(notebook).values():
        cell["source"] = lines("import a_package_that_nobody_has as package\n\n" + text_of(cell))


def stub_copied_after(notebook: Notebook, rng: random.Random) -> None:
    """Each cell as it was given, pasted once more under the check."""
    given = answer_cells(blank(notebook["metadata"]["course"]["lesson"]))
    for exercise, cell in answer_cells(notebook).items():
        below = place(notebook, check_cell(notebook, exercise)) + 1
        notebook["cells"].insert(below, _copy(cell, text_of(given[exercise]), rng))


def older_answers_above(notebook: Notebook, older: dict[str, str], rng: random.Random) -> None:
    """An earlier version of some answers in a copy above the cell that counts."""
    for exercise, text in older.items():
        cell = answer_cells(notebook)[exercise]
        notebook["cells"].insert(place(notebook, cell), _copy(cell, text, rng))


def newer_answers_below(notebook: Notebook, older: dict[str, str], rng: random.Random) -> None:
    """The given cell keeps an earlier version; a copy below its check holds the one that counts, and is checked too."""
    for exercise, text in older.items():
        cell, check = answer_cells(notebook)[exercise], check_cell(notebook, exercise)
        below = place(notebook, check) + 1
        notebook["cells"][below:below] = [_copy(cell, text_of(cell), rng), _copy(check, text_of(check), rng)]
        cell["source"] = lines(text)


def _copy(cell: dict[str, Any], text: str, rng: random.Random) -> dict[str, Any]:
    """A copy as Jupyter makes it: the same metadata under a fresh id."""
    return code(text, rng) | {"metadata": copy.deepcopy(cell["metadata"])}


def as_format_3(notebook: Notebook) -> Notebook:
    """The notebook as editors of before 2015 wrote it: one worksheet, `input` for `source`."""
    cells = []
    for cell in notebook["cells"]:
        kept = {"cell_type": cell["cell_type"], "metadata": {}}
        if is_code(cell):
            cells.append(kept | {"input": cell["source"], "language": "python", "outputs": [], "collapsed": False})
        else:
            cells.append(kept | {"source": cell["source"]})
    return {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells}]}
