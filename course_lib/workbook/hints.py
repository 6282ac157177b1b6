"""Hints in steps: each call shows one more."""

from course_lib.workbook import progress, show
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import strict


def hint(exercise_id: object) -> None:
    """Show the hints seen so far and the next one. Hints used are counted in the progress; they cost no points.

    In a student's hands it never raises; with COURSE_STRICT=1 it raises for an exercise that does not exist.
    """
    try:
        exercise = find(exercise_id)
        used = min(progress.load().get(exercise.id, progress.Record()).hints + 1, len(exercise.hints))
        seen = progress.load().get(exercise.id, progress.Record()).hints
        progress.update(exercise.id, hints=used - seen)
    except (ValueError, OSError) as error:
        if strict():
            raise
        show.message(f"Hint: {error}")
        return
    lines = [f"Hint {i + 1} of {len(exercise.hints)}: {text}" for i, text in enumerate(exercise.hints[:used])]
    if seen >= len(exercise.hints):
        lines.append("These are all hints of this exercise.")
    show.message("\n".join(lines))
