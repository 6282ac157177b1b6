"""Hints in steps: each call shows one more."""

from course_lib.workbook import progress, show
from course_lib.workbook.catalogue import find


def hint(exercise_id: object) -> None:
    """Show the hints seen so far and the next one. Hints used are counted in the progress; they cost no points."""
    try:
        exercise = find(exercise_id)
        used = min(progress.load().get(exercise.id, progress.Record()).hints + 1, len(exercise.hints))
        seen = progress.load().get(exercise.id, progress.Record()).hints
        progress.update(exercise.id, hints=used - seen)
    except (ValueError, OSError) as error:
        show.message(f"Hint: {error}")
        return
    lines = [f"Hint {i + 1} of {len(exercise.hints)}: {text}" for i, text in enumerate(exercise.hints[:used])]
    show.message("\n".join(lines))
