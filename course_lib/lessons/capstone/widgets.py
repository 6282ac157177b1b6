"""The interactive view of lesson 12: the Pareto front by domain and budget. Without a browser one state remains."""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from course_lib.compose.challenge.budget import BUDGET
from course_lib.lessons.capstone import plots
from course_lib.lessons.capstone.experiments.ground import DOMAINS
from course_lib.lessons.common.results import percent
from course_lib.lessons.common.views import show_view

SHARES = (0.2, BUDGET.read, BUDGET.held, 0.5, 0.75, 1.0)


def pareto_front(recipes: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> widgets.VBox:
    """Show the front with your recipes; choose the domain and both budgets."""
    shares = [(percent(share), share) for share in SHARES]
    choice = {
        "domain": widgets.Dropdown(options=DOMAINS, description="domain"),
        "held": widgets.SelectionSlider(options=shares, value=BUDGET.held, description="memory"),
        "read": widgets.SelectionSlider(options=shares, value=BUDGET.read, description="read"),
    }
    return show_view(lambda domain, held, read: plots.pareto_front(recipes, own, domain, (held, read)), choice)
