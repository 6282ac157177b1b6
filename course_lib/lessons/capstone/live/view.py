"""The live view of lesson 12: the front over budgets and domains. Without a browser one of them stays."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from course_lib.compose.challenge.budget import BUDGET
from course_lib.lessons.capstone.ground import DOMAINS
from course_lib.lessons.common.tables import percent
from course_lib.lessons.common.views import show_view

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
    shares = [(percent(share), share) for share in SHARES]
    choice = {
        "domain": widgets.Dropdown(options=DOMAINS, description="domain"),
        "held": widgets.SelectionSlider(options=shares, value=held, description="held"),
        "read": widgets.SelectionSlider(options=shares, value=read, description="read"),
    }
    return show_view(lambda domain, held, read: draw(recipes, mine, domain, (held, read)), choice)
