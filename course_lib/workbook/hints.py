"""Hints in steps: each call, and each click on the button below a check, shows one more."""

from course_lib.checking.exercise import Exercise
from course_lib.workbook import progress, session, show
from course_lib.workbook.catalogue import find

_shown: dict[str, int] = {}  # since the kernel started, if progress cannot be stored


def hint(exercise_id: object) -> None:
    """Show the hints so far and the next one. Progress counts the hints; they cost no points.

    In a student's hands it never raises; with COURSE_STRICT=1 it raises for an exercise that does not exist.
    """
    try:
        exercise = find(exercise_id)
    except ValueError as error:
        if session.strict():
            raise
        show.message(f"Hint: {error}")
        return
    show.message(_one_more(exercise)[1])


def button(exercise: Exercise) -> None:
    """Show a button for the same, if a person can click on it; `hint` works everywhere."""
    if not session.has_widgets() or not exercise.hints:
        return
    from IPython.display import display
    from ipywidgets import HTML, Button, Layout, VBox

    press = Button(description=_label(exercise, _seen(exercise)), layout=Layout(width="auto"))
    hints_shown = HTML()

    def pressed(_: Button) -> None:
        n_shown, text = _one_more(exercise)
        press.description, hints_shown.value = _label(exercise, n_shown), show.framed(text)

    press.on_click(pressed)
    box = VBox([press, hints_shown], layout=Layout(align_items="flex-start", margin="0 0 0 1em"))
    # A frontend without widgets shows the empty HTML instead of the names of the widgets.
    display({**box._repr_mimebundle_(), "text/html": "<span></span>", "text/plain": ""}, raw=True)


def _label(exercise: Exercise, seen: int) -> str:
    n_hints = len(exercise.hints)
    return f"Hint {seen + 1} of {n_hints}" if seen < n_hints else f"All {n_hints} hints"


def _seen(exercise: Exercise) -> int:
    try:
        return progress.seen_hints(exercise.id)
    except OSError:
        return _shown.get(exercise.id, 0)


def _one_more(exercise: Exercise) -> tuple[int, str]:
    """Return the number of hints shown now, and their text with the next one, which is counted."""
    n_hints, not_counted = len(exercise.hints), []
    try:
        seen = progress.seen_hints(exercise.id)
        progress.update(exercise.id, hints=min(seen + 1, n_hints) - seen)
    except OSError as error:
        seen, not_counted = _shown.get(exercise.id, 0), [progress.not_kept(error)]
    _shown[exercise.id] = n_shown = min(seen + 1, n_hints)
    lines = [f"Hint {i + 1} of {n_hints}: {text}" for i, text in enumerate(exercise.hints[:n_shown])]
    if seen >= n_hints:
        lines.append("This exercise has no more hints.")
    return n_shown, "\n".join(lines + not_counted)
