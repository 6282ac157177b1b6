"""The ledger in a notebook: choose a verdict, read the claims that came out so. Without a browser one stays."""

import ipywidgets as widgets
from IPython.display import DisplayHandle, display

from course_lib.lessons.common.verdicts import FAILS, WORDS
from course_lib.workbook.ledger.filtered import table


class Text(str):
    """Shown as it is, without quotes."""

    __repr__ = str.__str__


def claims(verdict: str = FAILS) -> widgets.VBox:
    """Show the claims of a verdict, and below the control those of another that is chosen.

    Raises:
        ValueError: for a word that is no verdict.
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
