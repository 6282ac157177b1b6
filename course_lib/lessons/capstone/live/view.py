"""The live views of lesson 12: the front over budgets, and claims by verdict. Without a browser one of each stays."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from IPython.display import DisplayHandle, display
from matplotlib.figure import Figure

from course_lib.lessons.capstone.ground import DOMAINS
from course_lib.lessons.common.tables import per_cent
from course_lib.lessons.common.verdicts import WORDS
from course_lib.workbook.ledger.filtered import table

SHARES = (0.2, 0.25, 1 / 3, 0.5, 0.75, 1.0)


def front(
    recipes: Sequence[dict[str, Any]],
    mine: Sequence[dict[str, Any]],
    draw: Callable[..., Figure],
    held: float = 1 / 3,
    read: float = 0.25,
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
    return _live(
        controls, [domain, *sliders], lambda: draw(recipes, mine, domain.value, tuple(s.value for s in sliders))
    )


def claims(verdict: str) -> widgets.VBox:
    """Show the claims that came out so; choose another verdict."""
    which = widgets.Dropdown(options=WORDS, value=verdict, description="verdict")
    return _live(widgets.VBox([which]), [which], lambda: Text(table(which.value)))


class Text(str):
    """Printed as it is, without quotes."""

    __repr__ = str.__str__


def _live(controls: widgets.VBox, inputs: Sequence[widgets.Widget], draw: Callable[[], Any]) -> widgets.VBox:
    display(controls)
    shown = DisplayHandle()
    shown.display(draw())
    for control in inputs:
        control.observe(lambda _change: shown.update(draw()), names="value")
    return controls
