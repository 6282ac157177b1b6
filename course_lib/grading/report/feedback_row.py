"""One exercise on a student's page: its cases, what happened, which mistake it looks like, and what to do.

Of a hidden case nothing is told but its name and whether it was right: neither the difference nor a traceback.
"""

from course_lib.checking.judge import but
from course_lib.grading.records import CaseResult, ExerciseResult, State
from course_lib.grading.report import charts
from course_lib.grading.report.html import NAME, counted, escape, escape_trace, points_of, sentence

MOST_CASES, MOST_NOTES = 60, 12

# Of each state: its mark, the word, and what can be done about it where no hint says so.
STATES: dict[State, tuple[str, str, str]] = {
    "right": ("right", "Right", ""),
    "partly": ("partly", "Partly right", ""),
    "wrong": ("wrong", "Not right yet", ""),
    "not attempted": ("none", "Not attempted", "Write the function, and run the check under it until it is right."),
    "not found": (
        "failed",
        "Not found",
        "Give the function the name that its check uses, and define it at the top level of a cell.",
    ),
    "failed": (
        "failed",
        "Did not run",
        "Restart the kernel, run the cells that the function needs and then its check: they must end without an error.",
    ),
    "no submission": ("none", "No submission", ""),
}

_HIDDEN = ' <span class="tag">(hidden)</span>'


def section(row: ExerciseResult, index: int) -> str:
    """All that is told of one exercise."""
    kind, word, _ = STATES[row.state]
    return (
        f'<section id="e{index}" aria-labelledby="h{index}"><header><h2 id="h{index}">{escape(row.title, NAME)}</h2>'
        f'<span class="state {kind}">{charts.mark(kind)}{word}</span>'
        f'<span class="points">{points_of(row.points, row.of)}</span></header>\n'
        f"{_cases(row)}{happened(row)}{_mistake(row)}{next_step(row)}{trace(row)}{notes(row.notes)}</section>"
    )


def _cases(row: ExerciseResult) -> str:
    """Every case by name; marks for the eye, words for a screen reader. Then why not all that are right count."""
    cases = row.cases
    if not cases:
        return ""
    n_right = sum(case.difference is None for case in cases)
    if n_right == len(cases):
        named = " · ".join(f"{escape(case.name, NAME)}{_HIDDEN * case.hidden}" for case in cases[:MOST_CASES])
        return f'<p class="small">{"All" if n_right > 1 else "The"} {counted(n_right, "case")} right: {named}</p>'
    lowered = f'<p class="small">{escape(but(n_right, len(cases), row.lowered))}</p>' if row.lowered else ""
    items = "".join(
        f"<li>{charts.mark(kind)}<span>{escape(case.name, NAME)}"
        f'<span class="hidden">: {word}</span>{_HIDDEN * case.hidden}</span></li>'
        for case in cases[:MOST_CASES]
        for kind, word in [("right", "right") if case.difference is None else ("wrong", "not right")]
    )
    summary = f'<p class="small">{n_right} of {counted(len(cases), "case")} right</p>'
    return f'{summary}<ul class="cases">{items}</ul>{lowered}'


def _first_wrong(row: ExerciseResult) -> CaseResult | None:
    return next((case for case in row.cases if case.difference is not None), None)


def happened(row: ExerciseResult) -> str:
    """The first visible wrong case in words; where there is none, the reason."""
    if row.state == "right":
        return ""
    shown = next((case for case in row.cases if case.difference is not None and not case.hidden), None)
    paragraphs = []
    if shown:
        difference = escape(shown.difference or "")
        paragraphs.append(f'<p><span class="case">{escape(shown.name, NAME)}:</span> {difference}</p>')
    elif n_hidden := sum(case.difference is not None for case in row.cases):
        which = "A hidden one is not: its name says" if n_hidden == 1 else "Hidden ones are not: their names say"
        looks = "it looks" if n_hidden == 1 else "they look"
        paragraphs.append(f"<p>All cases of the notebook are right. {which} what {looks} at.</p>")
    if row.reason and not (row.cases and _repeats(row)):
        paragraphs.append(f"<p>{sentence(row.reason)}</p>")
    return box("happened", "What happened", "".join(paragraphs)) if paragraphs and row.state != "not attempted" else ""


def _repeats(row: ExerciseResult) -> bool:
    """Whether the reason says again what the cases say already."""
    first = _first_wrong(row)
    if first is None:
        return False
    return row.reason.startswith(f"{first.name}: ") or row.reason in (
        first.difference,
        f"wrong on a hidden case: {first.name}",
    )


def _mistake(row: ExerciseResult) -> str:
    if not row.mistake:
        return ""
    return box("mistake", f"This looks like: {escape(row.mistake, NAME)}", f"<p>{escape(row.explanation)}</p>")


def next_step(row: ExerciseResult) -> str:
    """What to do: the next hint, and what is to be done about this state."""
    advice = [part for part in (STATES[row.state][2], row.hint) if part and row.state != "right"]
    return box("next", "What to do", "".join(f"<p>{escape(part)}</p>" for part in advice)) if advice else ""


def trace(row: ExerciseResult) -> str:
    """The traceback of the student's own code, unless it comes from a hidden case."""
    first = _first_wrong(row)
    if not row.trace.strip() or (first and first.hidden):
        return ""
    return (
        "<details><summary>Where your code was</summary>"
        f'<pre dir="ltr" tabindex="0" aria-label="Traceback">{escape_trace(row.trace)}</pre></details>'
    )


def notes(remarks: tuple[str, ...]) -> str:
    """What the student should know besides, such as which of two definitions was graded."""
    if not remarks:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in remarks[:MOST_NOTES])
    left = f"<li>and {len(remarks) - MOST_NOTES:,} more</li>" if len(remarks) > MOST_NOTES else ""
    return f'<ul class="notes">{items}{left}</ul>'


def box(kind: str, title: str, body: str) -> str:
    """A titled paragraph; title and body are escaped already."""
    return f'<div class="said {kind}"><h3>{title}</h3>{body}</div>\n'
