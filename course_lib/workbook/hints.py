"""Hints in steps: each call, and each click on the button below a check, shows one more."""

import contextlib
from collections.abc import Callable

from course_lib.checking.exercise import Exercise
from course_lib.workbook import progress, session, show
from course_lib.workbook.catalogue import find

_shown: dict[str, int] = {}  # since the kernel started, if progress cannot be stored
_cards: dict[str, Callable[[int], None]] = {}  # by exercise: show the card of its newest check for n hints shown


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


def keep_card(exercise: Exercise, card: Callable[[int], None] | None) -> None:
    """Update the card of a check with each hint, so that it offers the next one; None for a card without hints."""
    _cards.pop(exercise.id, None)
    if card:
        _cards[exercise.id] = card


def button(exercise: Exercise) -> None:
    """Show a button for the same, if a person can click on it; `hint` works everywhere."""
    if not session.has_widgets() or not exercise.hints:
        return
    from IPython.display import display
    from ipywidgets import HTML, Button, Layout, VBox

    press = Button(description=_label(exercise, n_seen(exercise)), layout=Layout(width="auto"))
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


def n_seen(exercise: Exercise) -> int:
    """Return the number of hints shown so far, also where progress cannot be stored."""
    since_start = _shown.get(exercise.id, 0)
    try:
        return max(progress.seen_hints(exercise.id), since_start)
    except OSError:
        return since_start


def _one_more(exercise: Exercise) -> tuple[int, str]:
    """Return the number of hints shown now, and their text with the next one, which is counted."""
    n_hints, not_counted, seen = len(exercise.hints), [], n_seen(exercise)
    n_shown = min(seen + 1, n_hints)
    try:
        progress.update(exercise.id, hints=n_shown - seen)
    except OSError as error:
        _shown[exercise.id], not_counted = n_shown, [progress.not_kept(error)]
    lines = [f"Hint {i + 1} of {n_hints}: {text}" for i, text in enumerate(exercise.hints[:n_shown])]
    if seen >= n_hints:
        lines.append("This exercise has no more hints.")
    if session.in_notebook() and exercise.id in _cards:
        with contextlib.suppress(Exception):  # an old card must not hide the hint
            _cards[exercise.id](n_shown)
    return n_shown, "\n".join(lines + not_counted)
