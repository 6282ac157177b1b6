"""Hints in steps: each call shows one more."""

from course_lib.workbook import progress, show
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import strict

_shown: dict[str, int] = {}  # since the kernel started, for where progress cannot be kept


def hint(exercise_id: object) -> None:
    """Show the hints seen so far and the next one. Hints used are counted in the progress; they cost no points.

    In a student's hands it never raises; with COURSE_STRICT=1 it raises for an exercise that does not exist.
    """
    try:
        exercise = find(exercise_id)
    except ValueError as error:
        if strict():
            raise
        show.message(f"Hint: {error}")
        return
    n_hints, not_counted = len(exercise.hints), []
    try:
        seen = progress.load().get(exercise.id, progress.Record()).hints
        progress.update(exercise.id, hints=min(seen + 1, n_hints) - seen)
    except OSError as error:
        seen, not_counted = _shown.get(exercise.id, 0), [progress.not_kept(error)]
    _shown[exercise.id] = min(seen + 1, n_hints)
    lines = [f"Hint {i + 1} of {n_hints}: {text}" for i, text in enumerate(exercise.hints[: _shown[exercise.id]])]
    if seen >= n_hints:
        lines.append("These are all hints of this exercise.")
    show.message("\n".join(lines + not_counted))
