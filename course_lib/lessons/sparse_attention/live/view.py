"""The live view of lesson 11: which blocks a head reads over γ. Without a browser one of them stays."""

from collections.abc import Mapping

import ipywidgets as widgets

from course_lib.lessons.common.views import show_view
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
    names = [(plots.named(each), each) for each in heads]
    choice = {
        "head": widgets.Dropdown(options=names, value=heads[0], description="head"),
        "gamma": widgets.SelectionSlider(options=GAMMAS, value=gamma, description="γ"),
    }
    return show_view(lambda head, gamma: plots.mask(chosen[head], gamma, head), choice)
