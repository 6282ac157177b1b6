"""Write the texts for one exercise on a student's page: what happened, where, and what to do. Templates lay them out.

For a hidden case the page gives only its name and whether it was correct, never the difference or a traceback.
"""

from course_lib.checking.judge import counted
from course_lib.grading.notebook.cells import UNREADABLE
from course_lib.grading.records import CaseResult, ExerciseResult, State

# For each state its mark, its word, and the next step if no hint gives one.
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

# The texts for a whole submission without a known grade.
NOT_YET = "Not graded yet: the grader failed on this submission. That is not your fault, and it will be graded again."

ANOTHER_FILE = (
    "Open the file in JupyterLab. If it opens as a notebook, save it there and hand that file in; if it does not, the "
    "notebook has to be found or downloaded again."
)


def _first_wrong(row: ExerciseResult) -> CaseResult | None:
    return next((case for case in row.cases if case.difference is not None), None)


def happened(row: ExerciseResult) -> list[tuple[str, str]]:
    """Return paragraphs, each with the name of its case or "": the first visible wrong case, or else the reason."""
    if row.state in ("right", "not attempted"):
        return []
    shown = next((case for case in row.cases if case.difference is not None and not case.hidden), None)
    paragraphs = []
    if shown:
        paragraphs.append((shown.name, shown.difference or ""))
        if shown.given:
            paragraphs.append(("given", shown.given))
    elif n_hidden := sum(case.difference is not None for case in row.cases):
        which = "A hidden one is not: its name says" if n_hidden == 1 else "Hidden ones are not: their names say"
        looks = "it looks" if n_hidden == 1 else "they look"
        paragraphs.append(("", f"All cases of the notebook are right. {which} what {looks} at."))
    if row.reason and not (row.cases and _repeats(row)):
        paragraphs.append(("", row.reason))
    return paragraphs


def _repeats(row: ExerciseResult) -> bool:
    """Check whether the reason repeats what the cases already say."""
    first = _first_wrong(row)
    if first is None:
        return False
    return row.reason.startswith(f"{first.name}: ") or row.reason in (
        first.difference,
        f"wrong on a hidden case: {first.name}",
    )


def lowered(row: ExerciseResult) -> str:
    """Explain why some correct cases do not count; return "" if all do."""
    n_right = sum(case.difference is None for case in row.cases)
    return counted(n_right, len(row.cases), row.lowered) if row.lowered else ""


def next_step(row: ExerciseResult) -> list[str]:
    """Return the next steps: what to do about the file or about this state, and the next hint."""
    advice = ANOTHER_FILE if row.reason.startswith(UNREADABLE) else STATES[row.state][2]
    return [part for part in (advice, row.hint) if part and row.state != "right"]


def trace(row: ExerciseResult) -> str:
    """Return the traceback of the student's own code, unless it comes from a hidden case."""
    first = _first_wrong(row)
    return "" if not row.trace.strip() or (first and first.hidden) else row.trace
