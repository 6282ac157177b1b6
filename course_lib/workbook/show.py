"""Show a verdict: HTML in Jupyter, plain text elsewhere."""

import base64
import html
import io
import sys

from course_lib.checking.compare import short
from course_lib.checking.given import given
from course_lib.checking.judge import Verdict, counted
from course_lib.workbook.progress import Record

# Left border, word: told apart without colour too.
_LOOK = {"right": ("#2e7d32", "Right"), "wrong": ("#c62828", "Not yet"), "not attempted": ("#757575", "Not attempted")}

# How a difference begins where there is no answer to show beside the expected one.
_NOTHING_GOT = ("it raised", "it returned", "it did not finish")


def in_notebook() -> bool:
    """Whether output is rendered by Jupyter."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def message(text: str) -> None:
    """Show a few lines of text."""
    _emit(text, f'<div style="{_box("#1565c0")}">{html.escape(text).replace(chr(10), "<br>")}</div>')


def verdict(verdict: Verdict, record: Record) -> None:
    """Show what a check found."""
    _emit(as_text(verdict, record), as_html(verdict, record))


def _emit(text: str, markup: str) -> None:
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    display({"text/html": markup, "text/plain": text}, raw=True)


def _rows(v: Verdict, record: Record) -> list[tuple[str, str]]:
    """What to say, as (label, text). Which case, got, expected, where first, which mistake, what next."""
    if v.state == "not attempted":
        return [("Next", f"write the function above, run its cell, then run this one. {_hint(v, record)}")]
    if v.state == "right":
        return []
    rows = [("Case", v.case.name)]
    if arguments := given(v.exercise, v.case, v.names):
        rows.append(("Given", arguments))
    if v.difference.startswith(_NOTHING_GOT):
        rows += [("What happened", v.difference)]
    else:
        got, expected = short(v.got), short(v.expected)
        rows += [("Got", got), ("Expected", expected)]
        if v.difference != f"got {got}, expected {expected}":  # of a single number that would say it twice
            rows.append(("Where", v.difference))
    if v.mistake:
        where = "" if not v.contradicted else "On the wrong cases "
        where = where if v.explained == v.n_wrong else f"On {v.explained} of the {v.n_wrong} wrong cases "
        rows += [(f"{where}{'this' if where else 'This'} looks like: {v.mistake.name}", v.mistake.explanation)]
    if v.lowered:
        rows.append(("Points", counted(v.n_right, v.n_cases, v.lowered)))
    return [*rows, ("Next", _hint(v, record))]


def _hint(v: Verdict, record: Record) -> str:
    n, used = len(v.exercise.hints), record.hints
    if used >= n:
        return f'All {n} hints are used; hint("{v.exercise.id}") shows them again.'
    return f'A hint is there ({used + 1} of {n}): hint("{v.exercise.id}")'


def _title(v: Verdict) -> str:
    counted = "" if v.state == "not attempted" else f" · {v.n_right} of {v.n_cases} cases"
    points = f" · {v.exercise.points} point{'s' * (v.exercise.points != 1)}" if v.state == "right" else ""
    return f"{_LOOK[v.state][1]} · {v.exercise.title}{counted}{points}"


def as_text(v: Verdict, record: Record) -> str:
    """The verdict as plain text."""
    lines = [_title(v)] + [f"  {label}: {text}" for label, text in _rows(v, record)]
    return "\n".join(lines + ([v.trace.rstrip()] if v.trace else []))


def as_html(v: Verdict, record: Record) -> str:
    """The verdict as HTML, with a picture where the exercise has one."""
    cell = "padding:.15em .8em .15em 0;vertical-align:top;text-align:left"
    rows = "".join(
        f'<tr style="background:none"><td style="{cell};width:min(11em,25vw);opacity:.7">{html.escape(label)}</td>'
        f'<td style="{cell};overflow-wrap:anywhere">{html.escape(text)}</td></tr>'
        for label, text in _rows(v, record)
    )
    trace = f"<details><summary>Traceback</summary><pre>{html.escape(v.trace)}</pre></details>" if v.trace else ""
    return (
        f'<div style="{_box(_LOOK[v.state][0])}"><b>{html.escape(_title(v))}</b>'
        f'<table style="margin:.3em 0 0 0;width:100%">{rows}</table>{trace}{_picture(v)}</div>'
    )


def _box(colour: str) -> str:
    return f"border-left:.35em solid {colour};padding:.5em 1em;margin:.3em 0"


def _picture(v: Verdict) -> str:
    """The exercise's picture as an inline PNG; a picture that fails is left out, the verdict stands."""
    if v.exercise.picture is None or v.state == "not attempted" or v.difference.startswith(_NOTHING_GOT):
        return ""
    try:
        buffer = io.BytesIO()
        v.exercise.picture(v.case, v.got, v.expected).savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        encoded = base64.b64encode(buffer.getvalue()).decode()
        style = "max-width:100%;background:white"
        return f'<img alt="got and expected" style="{style}" src="data:image/png;base64,{encoded}">'
    except Exception:
        return ""
