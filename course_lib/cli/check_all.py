"""`check_all()`, the last cell of a notebook: a table of all its exercises, with the code that grading would run."""

import ast
import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_lib.checking.exercise import Exercise
from course_lib.grading.notebook.program import Notebook, Program, load
from course_lib.grading.notebook.statements import is_stub
from course_lib.workbook import catalogue, checks, session, show

COLUMNS = ("Exercise", "Check", "Cases", "Points", "Grading runs")
NOT_RUN, NOT_YET = "its cell has not run", "nothing yet"


@dataclass(frozen=True)
class Row:
    """One exercise: its state, its right cases, the points for them, and the code that grading would run."""

    exercise: Exercise
    state: str
    cases: str = ""
    points: float = 0.0
    grading: str = ""
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns."""
        points = f"{round(self.points, 2):g} of {self.exercise.points}"
        return self.exercise.title, self.state, self.cases, points, self.grading


def check_all() -> None:
    """Check every exercise of this notebook again, with the functions in the kernel, and show them in one table.

    In a student's hands it never raises. With COURSE_STRICT=1 it raises CheckFailed if an answer is not right.
    """
    try:
        path, notebook, problem = _saved()
        rows = _rows(path, notebook)
    except Exception as error:
        if session.strict():
            raise
        show.message(f"check_all could not run: {error}")
        return
    _show(rows, [*_summary(rows), problem or _source(path)])
    wrong = [row.exercise.id for row in rows if row.state not in ("right", NOT_RUN)]
    if session.strict() and wrong:
        raise checks.CheckFailed(f"not right: {', '.join(wrong)}")


def _saved() -> tuple[Path | None, Notebook | None, str]:
    """Return the notebook's file, what grading reads from it, and why it could not be read."""
    path = session.notebook_file()
    if path is None:
        return None, None, ""
    try:
        notebook = load(path.read_bytes())
    except (OSError, ValueError) as error:
        return path, None, f"Grading could not read {path.name}: {error}"
    # A notebook that is not a lesson may contain a check too; it is not graded.
    return (path, notebook, "") if notebook.checks else (None, None, "")


def _rows(path: Path | None, notebook: Notebook | None) -> list[Row]:
    """One row for each exercise of the lesson."""
    from course_lib.cli import check_notebook  # imported late, because it imports the notebook formats

    if notebook:
        exercises = check_notebook.exercises_of(notebook, path)
    elif checked := checks.last_checked():
        exercises = catalogue.exercises_of(checked.split(".")[0]).EXERCISES
    else:
        raise ValueError("no check of this notebook has run yet; run the checks first.")
    names = check_notebook.usual_names() if notebook or any(map(_is_unchecked, exercises)) else {}
    return [_row(exercise, notebook, names.get(exercise.id, "")) for exercise in exercises]


def _is_unchecked(exercise: Exercise) -> bool:
    return checks.checked(exercise) is None


def _row(exercise: Exercise, notebook: Notebook | None, name: str) -> Row:
    function = _function(exercise, name)
    grading = _grading(exercise, notebook, name)
    if function is None:
        return Row(exercise, NOT_RUN, "", 0.0, *grading)
    verdict = checks.judged(exercise, function)
    cases = "" if verdict.state == "not attempted" else f"{verdict.n_right} of {verdict.n_cases}"
    return Row(exercise, verdict.state, cases, exercise.points * verdict.share, *grading)


def _function(exercise: Exercise, usual: str) -> Callable | None:
    """Return the student's current function: it may have changed since its check ran."""
    checked, names = checks.checked(exercise), getattr(session.shell(), "user_ns", {})
    now = names.get(getattr(checked, "__name__", usual))
    return now if callable(now) else checked


def _grading(exercise: Exercise, notebook: Notebook | None, name: str) -> tuple[str, tuple[str, ...]]:
    """Describe what grading would run for an exercise, with its notes."""
    if notebook is None:
        return "", ()
    try:
        program = notebook.program(exercise.id, name)
    except (LookupError, ValueError) as error:
        return "nothing", (str(error.args[0]),)
    description = _in_words(program)
    return description, () if description == NOT_YET else program.notes


def _in_words(program: Program) -> str:
    """Such as "wanda_score, from cells 2 and 9"."""
    own = [part for statement in program.statements for part in ast.parse(statement.source).body]
    if any(is_stub(part) and part.name == program.function for part in own):
        return NOT_YET
    numbers = {statement.filename.removeprefix("cell ") for statement in program.statements}
    cells = sorted((number for number in numbers if number.isdigit()), key=int)
    name = "what check is given" if program.function.startswith("_checked_") else program.function
    listed = " and ".join(filter(None, [", ".join(cells[:-1]), *cells[-1:]]))
    return f"{name}, from cell{'s' * (len(cells) != 1)} {listed}"


def _summary(rows: list[Row]) -> list[str]:
    n_right, points = sum(row.state == "right" for row in rows), round(sum(row.points for row in rows), 2)
    n_points = sum(row.exercise.points for row in rows)
    notes = [f"{row.exercise.title}: {note}" for row in rows for note in row.notes]
    right = f"{n_right} of {len(rows)} exercises are right, for {points:g} of {n_points} points."
    return [f"{right} Grading tries more cases than check does.", *notes]


def _source(path: Path | None) -> str:
    if path is None:
        return "The command course check-notebook FILE shows what grading runs from a saved notebook."
    saved = time.strftime("%H:%M", time.localtime(path.stat().st_mtime))
    return f"Grading reads the file: {path.name} was saved at {saved}. Cells are counted from the top, text included."


def _show(rows: list[Row], lines: list[str]) -> None:
    columns = COLUMNS if any(row.grading for row in rows) else COLUMNS[:-1]
    table = [columns, *(row.cells[: len(columns)] for row in rows)]
    show.emit("\n".join([*_as_text(table), *lines]), _as_html(table, lines))


def _as_text(table: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def _as_html(table: list[tuple[str, ...]], lines: list[str]) -> str:
    """A table that scrolls inside its own box where a screen is narrow."""
    style = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0"

    def row(texts: tuple[str, ...], tag: str) -> str:
        cells = (f'<{tag} style="{style}">{html.escape(text)}</{tag}>' for text in texts)
        return f"<tr>{''.join(cells)}</tr>"

    head, *body = table
    rows = row(head, "th") + "".join(row(texts, "td") for texts in body)
    paragraphs = "".join(f'<p style="margin:.3em 0">{html.escape(line)}</p>' for line in lines)
    return f'<div style="overflow-x:auto" tabindex="0"><table>{rows}</table></div>{paragraphs}'
