"""The live view of lesson 12: the front over budgets and domains. Without a browser one of them stays."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from IPython.display import DisplayHandle, display
from matplotlib.figure import Figure

from course_lib.compose.challenge.budget import BUDGET
from course_lib.lessons.capstone.ground import DOMAINS
from course_lib.lessons.common.tables import per_cent

SHARES = (0.2, BUDGET.read, BUDGET.held, 0.5, 0.75, 1.0)


def front(
    recipes: Sequence[dict[str, Any]],
    mine: Sequence[dict[str, Any]],
    draw: Callable[..., Figure],
    held: float = BUDGET.held,
    read: float = BUDGET.read,
) -> widgets.VBox:
    """Show the front with the student's recipes; choose the domain and both budgets.

    Args:
        draw: (recipes, mine, domain, budget) -> the figure.
    """
    domain = widgets.Dropdown(options=DOMAINS, description="domain")
    shares = [(per_cent(share), share) for share in SHARES]
    sliders = [
        widgets.SelectionSlider(options=shares, value=share, description=name)
        for name, share in (("held", held), ("read", read))
    ]
    controls = widgets.VBox([widgets.HBox([domain, *sliders])])
    display(controls)
    shown = DisplayHandle()

    def current() -> Figure:
        return draw(recipes, mine, domain.value, tuple(slider.value for slider in sliders))

    shown.display(current())
    for control in (domain, *sliders):
        control.observe(lambda _change: shown.update(current()), names="value")
    return controls
