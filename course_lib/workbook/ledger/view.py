"""The ledger in a notebook: choose a verdict and read its claims. Without a browser, the first choice remains."""

import ipywidgets as widgets
from IPython.display import DisplayHandle, display

from course_lib.lessons.common.verdicts import FAILS, WORDS
from course_lib.workbook.ledger.filtered import table


class Text(str):
    """Text that a notebook shows without quotes."""

    __repr__ = str.__str__


def claims(verdict: str = FAILS) -> widgets.VBox:
    """Show a control for choosing a verdict, and below it the claims with this verdict.

    Raises:
        ValueError: an unknown verdict.
    """
    if verdict not in WORDS:
        raise ValueError(f"got verdict {verdict!r}; expected one of {', '.join(WORDS)}.")
    which = widgets.Dropdown(options=WORDS, value=verdict, description="verdict")
    controls = widgets.VBox([which])
    display(controls)
    shown = DisplayHandle()
    shown.display(Text(table(verdict)))
    which.observe(lambda _change: shown.update(Text(table(which.value))), names="value")
    return controls
