"""The frame of all interactive views: controls, and below them the output for their values.

Without a browser, for example if a notebook is executed in a terminal, the picture of the first values stays.
"""

from collections.abc import Callable, Mapping

import ipywidgets as widgets
from IPython.display import DisplayHandle, display


def show_view(
    draw: Callable[..., object],
    choice: Mapping[str, widgets.Widget],
    controls: widgets.VBox | None = None,
    refused: widgets.Label | None = None,
) -> widgets.VBox:
    """Show the controls and, below them, the output of `draw`; a new choice replaces it. Returns the controls.

    Args:
        draw: takes the value of each control by name.
        choice: the controls by name.
        controls: the layout of the controls, which may contain others; side by side if None.
        refused: shows why `draw` refuses a choice with a ValueError; the last picture stays.
    """
    controls = controls or widgets.VBox([widgets.HBox(list(choice.values()))])
    display(controls)
    shown = DisplayHandle()

    def current() -> object:
        return draw(**{name: control.value for name, control in choice.items()})

    def renew(_change: object) -> None:
        try:
            shown.update(current())
        except ValueError as error:
            if refused is None:
                raise
            refused.value = str(error)
        else:
            if refused is not None:
                refused.value = ""

    shown.display(current())
    for control in choice.values():
        control.observe(renew, names="value")
    return controls


def player(slider: widgets.IntSlider, interval: int) -> widgets.Play:
    """Make a button that moves a slider one step every `interval` milliseconds."""
    play = widgets.Play(value=slider.value, min=slider.min, max=slider.max, interval=interval)
    widgets.jslink((play, "value"), (slider, "value"))
    return play
