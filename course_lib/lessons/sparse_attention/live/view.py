"""The live view of lesson 11: which blocks a head reads over γ. Without a browser one of them stays."""

from collections.abc import Mapping

import ipywidgets as widgets
from IPython.display import DisplayHandle, display
from matplotlib.figure import Figure

from course_lib.lessons.sparse_attention.live import plots
from course_lib.lessons.sparse_attention.live.heads import Chosen, Head

GAMMAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def explore(chosen: Mapping[Head, Chosen], gamma: float = 0.9) -> widgets.VBox:
    """Show the controls and, below them, the mask; choose a head and γ.

    Raises:
        ValueError: for no head, or a γ that the slider has not.
    """
    if not chosen or gamma not in GAMMAS:
        raise ValueError(f"got {len(chosen)} heads and γ = {gamma}; expected one at least, and γ one of {GAMMAS}.")
    heads = tuple(chosen)
    head = widgets.Dropdown(options=[(plots.named(each), each) for each in heads], value=heads[0], description="head")
    share = widgets.SelectionSlider(options=GAMMAS, value=gamma, description="γ")
    controls = widgets.VBox([widgets.HBox([head, share])])
    display(controls)
    shown = DisplayHandle()

    def current() -> Figure:
        return plots.mask(chosen[head.value], share.value, head.value)

    shown.display(current())
    for control in (head, share):
        control.observe(lambda _change: shown.update(current()), names="value")
    return controls
