"""Read the cells from the bytes of a notebook, whatever program wrote it. Standard library only, for the sandbox."""

import json
import re
from dataclasses import dataclass, field

UNREADABLE = "No notebook can be read from the file"  # the start of a reason that concerns the file, not an answer
LARGEST = 32 * 2**20  # bytes; the outside has already checked this limit
MOST_CELLS = 5_000
LONGEST_CELL = 2**18  # characters of one cell of code; the course's longest has 2,000
MOST_CODE = 2**22  # characters of code in all cells together
MOST_STATEMENTS = 50_000  # statements of the top level; the facts of each take 4 KiB and a tenth of a millisecond
_SLUG = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*-[a-z][a-z0-9]*(_[a-z0-9]+)*")  # a cell id: "wanda-score"
# Two searches, one after the other: a single expression would start again at every line.
_CONFLICT = re.compile(r"^[ \t]*<{7}(?!<)", re.MULTILINE), re.compile(r"^[ \t]*={7}[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """One cell. Cells are counted from 1, including text cells, as in editors."""

    number: int
    kind: str
    text: str
    id: str = ""
    metadata: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of a cell in messages and tracebacks."""
        return f"cell {self.number}"

    def claims(self, exercise: str) -> int:
        """Return how surely the cell belongs to an exercise: 2 by its id, 1 by metadata, which copies share, 0 not."""
        slug = exercise.replace(".", "-")
        return 2 if self.id == slug else int(self.metadata.get("exercise") == exercise or self._grade_id == slug)

    @property
    def is_claimed(self) -> bool:
        """Check whether the cell was made for some exercise, as far as this is visible without a list of exercises."""
        slug = self._grade_id if isinstance(self._grade_id, str) else self.id
        return "exercise" in self.metadata or bool(_SLUG.fullmatch(slug))

    @property
    def _grade_id(self) -> object:
        grade = self.metadata.get("nbgrader")
        return grade.get("grade_id") if isinstance(grade, dict) else None


def read(content: bytes) -> list[Cell]:
    """Return the cells of a notebook.

    Raises:
        ValueError: with the reason, if it is not a notebook or larger than any real notebook.
    """
    try:
        return _cells(content)
    except ValueError as error:
        raise ValueError(f"{UNREADABLE}: {error}") from None


def _cells(content: bytes) -> list[Cell]:
    if len(content) > LARGEST:
        raise ValueError(
            f"got a notebook of {len(content) >> 20} MiB; clear its outputs, {LARGEST >> 20} MiB are taken."
        )
    whole = _parsed(content)
    listed = whole.get("cells") if isinstance(whole, dict) else None
    if listed is None and isinstance(whole, dict) and isinstance(whole.get("worksheets"), list):  # nbformat 3
        sheets = [sheet for sheet in whole["worksheets"] if isinstance(sheet, dict)]
        listed = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    if not isinstance(listed, list):
        raise ValueError("it is JSON with no list of cells; hand in the .ipynb file itself.")
    if len(listed) > MOST_CELLS:
        raise ValueError(f"got a notebook of {len(listed)} cells; expected at most {MOST_CELLS}.")
    cells = [_cell(number, raw) for number, raw in enumerate(listed, 1) if isinstance(raw, dict)]
    if (code := sum(len(cell.text) for cell in cells if cell.kind == "code")) > MOST_CODE:
        raise ValueError(f"got {code} characters of code; expected at most {MOST_CODE}: is data pasted into a cell?")
    return cells


def _parsed(content: bytes) -> object:
    text = _text(content)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is JSON that is nested too deeply.") from None
    except ValueError as error:
        hint = ""
        if all(mark.search(text) for mark in _CONFLICT):
            hint = " It holds the marks of a Git conflict (<<<<<<<): resolve the conflict and save the notebook again."
        elif text.lstrip().startswith("<"):
            hint = " It looks like a web page: download the notebook itself, not the page that shows it."
        elif len(text) > 1 and text.lstrip().startswith("{"):
            hint = " It looks like a notebook that is cut off or was damaged: save it again."
        else:
            hint = " A notebook is expected: the .ipynb file that JupyterLab saves."
        raise ValueError(f"it is not JSON ({str(error)[:200]}).{hint}") from None


def _text(content: bytes) -> str:
    """Decode JSON in UTF-8, UTF-16 or UTF-32, with or without a byte order mark."""
    if not content.strip():
        raise ValueError("it is an empty file; save the notebook again, and hand in the .ipynb file.")
    if content[:2] == b"PK":
        raise ValueError("it is a zip that is named as a notebook; hand in the .ipynb file itself.")
    encoding = json.detect_encoding(content)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"its bytes are no {encoding} text (at byte {error.start}); save it as UTF-8.") from None


def _cell(number: int, cell: dict) -> Cell:
    source = cell.get("source", cell.get("input", ""))  # nbformat 3 says input
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    source = source if isinstance(source, str) else ""
    metadata, id_ = cell.get("metadata"), cell.get("id")
    return Cell(
        number,
        str(cell.get("cell_type")),
        source.replace("\r\n", "\n").replace("\r", "\n"),
        id_ if isinstance(id_, str) else "",
        metadata if isinstance(metadata, dict) else {},
    )
