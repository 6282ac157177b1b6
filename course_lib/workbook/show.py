"""Show a verdict: HTML in Jupyter, plain text elsewhere."""

import base64
import html
import io
from dataclasses import dataclass
from typing import Any, NamedTuple

from course_lib.checking.compare import short
from course_lib.checking.given import LONG, given, in_full
from course_lib.checking.judge import Verdict, counted
from course_lib.workbook.progress import Record
from course_lib.workbook.session import in_notebook

# Left border and word; the word makes the state clear without colour.
_LOOK = {"right": ("#2e7d32", "Right"), "wrong": ("#c62828", "Not yet"), "not attempted": ("#757575", "Not attempted")}

# The start of a difference if there is no answer to show next to the expected one.
_NOTHING_GOT = ("it raised", "it returned", "it did not finish")


@dataclass(frozen=True)
class Surroundings:
    """Facts about the lesson that a notebook shows with a verdict.

    Args:
        progress: how far the student is in the lesson.
        next_title: what the next exercise of the lesson is called; empty after the last one.
        stale: numbers of cells that used the course's function and are now out of date.
        solution: the source of one way to solve the exercise.
        waits_for: title of the unsolved exercise whose function this one calls.
    """

    progress: str = ""
    next_title: str = ""
    stale: tuple[int, ...] = ()
    solution: str = ""
    waits_for: str = ""


_ALONE = Surroundings()  # outside a student's notebook


class _Row(NamedTuple):
    """One line of a card. `strong` is printed before the text, in bold if the output supports it."""

    label: str
    text: str
    strong: str = ""


def message(text: str, display_id: str | None = None, update: bool = False) -> None:
    """Show a few lines of text.

    Args:
        display_id: a name for this output, with which it can be replaced later (`update`).
    """
    emit(text, framed(text), display_id, update)


def framed(text: str) -> str:
    """Return text as HTML, with a coloured line to its left."""
    return f'<div style="{_box("#1565c0")}">{html.escape(text).replace(chr(10), "<br>")}</div>'


def verdict(
    verdict: Verdict,
    record: Record,
    surroundings: Surroundings = _ALONE,
    display_id: str | None = None,
    update: bool = False,
) -> None:
    """Show the verdict of a check; `display_id` and `update` as in `message`."""
    emit(as_text(verdict, record, surroundings), as_html(verdict, record, surroundings), display_id, update)


def emit(text: str, markup: str, display_id: str | None = None, update: bool = False) -> None:
    """Show HTML in a notebook, and text elsewhere."""
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    named = {"display_id": display_id, "update": update} if display_id else {}
    display({"text/html": markup, "text/plain": text}, raw=True, **named)


def _rows(v: Verdict, record: Record, surroundings: Surroundings, pictured: bool) -> list[_Row]:
    """Make the lines of a card: case, got, expected, first difference, mistake, next step."""
    rows = _what_is_wrong(v, pictured) if v.state == "wrong" else []
    rows.append(_Row("Next step", _next_step(v, surroundings)))
    if v.state != "right" and v.exercise.hints:
        rows.append(_Row("Hints", _hint(v, record)))
    if surroundings.progress:
        rows.append(_Row("Progress", surroundings.progress))
    return rows


def _what_is_wrong(v: Verdict, pictured: bool) -> list[_Row]:
    rows = [_Row("Case", v.case.name)]
    if arguments := given(v.exercise, v.case, v.names):
        rows.append(_Row("Given", arguments))
    if v.difference.startswith(_NOTHING_GOT):
        rows.append(_Row("What happened", v.difference))
    else:
        values = [] if pictured else _values(v.got, v.expected)
        rows += [_Row(label, text) for label, text in zip(("Got", "Expected"), values, strict=False)]
        # For a single number, this would repeat the lines above.
        if not values or v.difference != f"got {short(v.got)}, expected {short(v.expected)}":
            rows.append(_Row("Where", v.difference))
    if v.mistake:
        where = " (on the wrong cases)" if v.contradicted else ""
        where = where if v.explained == v.n_wrong else f" (on {v.explained} of the {v.n_wrong} wrong cases)"
        rows.append(_Row("This looks like", v.mistake.explanation, f"{v.mistake.name}{where}."))
    if v.lowered:
        rows.append(_Row("Points", counted(v.n_right, v.n_cases, v.lowered)))
    return rows


def _values(got: Any, expected: Any) -> list[str]:
    """Write out the returned and the expected value; nothing if both are too large."""
    texts = [text if (text := in_full(value)) and len(text) <= LONG else "" for value in (got, expected)]
    return [text or short(value) for text, value in zip(texts, (got, expected), strict=True)] if any(texts) else []


def _next_step(v: Verdict, surroundings: Surroundings) -> str:
    """Describe the next step in one sentence."""
    again = "then run its cell and this one again."
    if v.waits_for:
        other = surroundings.waits_for
        return f"Your function calls the one of “{other}”, which is not written yet. Write that one first, {again}"
    if v.state == "not attempted":
        return "Write the function above, run its cell, then run this one."
    if v.state == "wrong" and v.difference.startswith("it raised"):
        return f"Find the line that raised it, correct the function, {again}"
    if v.state == "wrong" and v.mistake:
        return f"Look for this mistake in your function, correct it, {again}"
    if v.state == "wrong":
        return f"Find out why this case differs, correct the function, {again}"
    if surroundings.stale:
        cells = " and ".join(f"[{number}]" for number in surroundings.stale)
        return f"Run {cells} again, which used the course's function, and then the cells below that use the results."
    if v.exercise.library is not None:
        return "Go on with the cells below: they now use your function."
    if surroundings.next_title:
        return f"Go on with the cells below. The next exercise is “{surroundings.next_title}”."
    return "This was the last exercise of the lesson: the last cell, check_all(), shows them all."


def _hint(v: Verdict, record: Record) -> str:
    n, used = len(v.exercise.hints), record.hints
    if used >= n:
        return f'All {n} hints were shown; hint("{v.exercise.id}") shows them again.'
    return f'hint("{v.exercise.id}") in a new cell shows hint {used + 1} of {n}.'


def _title(v: Verdict) -> str:
    counted = "" if v.state == "not attempted" else f" · {v.n_right} of {v.n_cases} cases"
    points = f" · {v.exercise.points} point{'s' * (v.exercise.points != 1)}" if v.state == "right" else ""
    return f"{_LOOK[v.state][1]} · {v.exercise.title}{counted}{points}"


def as_text(v: Verdict, record: Record, surroundings: Surroundings = _ALONE) -> str:
    """Return the verdict as plain text."""
    rows = _rows(v, record, surroundings, pictured=False)
    lines = [_title(v), *(f"  {row.label}: {' '.join(filter(None, (row.strong, row.text)))}" for row in rows)]
    return "\n".join(lines + ([v.trace.rstrip()] if v.trace else []))


def as_html(v: Verdict, record: Record, surroundings: Surroundings = _ALONE) -> str:
    """Return the verdict as HTML, with a picture if the exercise has one."""
    picture = _picture(v)
    cell = "padding:.15em .8em .15em 0;vertical-align:top;text-align:left"
    rows = "".join(
        f'<tr style="background:none"><td style="{cell};width:min(11em,25vw);opacity:.7">{html.escape(row.label)}</td>'
        f'<td style="{cell};overflow-wrap:anywhere">{f"<b>{html.escape(row.strong)}</b> " if row.strong else ""}'
        f"{html.escape(row.text)}</td></tr>"
        for row in _rows(v, record, surroundings, pictured=bool(picture))
    )
    trace = _folded("Traceback", v.trace) if v.trace else ""
    solution = _folded("One way to solve it", surroundings.solution) if surroundings.solution else ""
    return (
        f'<div style="{_box(_LOOK[v.state][0])}"><b>{html.escape(_title(v))}</b>'
        f'<table style="margin:.3em 0 0 0;width:100%">{rows}</table>{trace}{solution}{picture}</div>'
    )


def _folded(summary: str, source: str) -> str:
    code = f'<pre style="overflow-x:auto">{html.escape(source)}</pre>'
    return f'<details><summary style="cursor:pointer">{summary}</summary>{code}</details>'


def _box(colour: str) -> str:
    return f"border-left:.35em solid {colour};padding:.5em 1em;margin:.3em 0"


def _picture(v: Verdict) -> str:
    """Make the exercise's picture as an inline PNG; a picture that fails is left out."""
    if v.exercise.picture is None or v.state == "not attempted" or v.difference.startswith(_NOTHING_GOT):
        return ""
    try:
        buffer = io.BytesIO()
        v.exercise.picture(v.case, v.got, v.expected).savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        encoded = base64.b64encode(buffer.getvalue()).decode()
        style = "max-width:100%;background:white;margin-top:.4em"
        return f'<img alt="got and expected" style="{style}" src="data:image/png;base64,{encoded}">'
    except Exception:
        return ""
