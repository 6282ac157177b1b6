"""Ideas for an open task beside the first of them, window by window: how hard a window is drops out.

Dimension key: N windows.
"""

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import listed
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.measure.paired import mean_and_error


def against(mine: Float[Tensor, "N"], theirs: Float[Tensor, "N"]) -> tuple[float, float]:
    """How much lower my log-perplexity is than theirs, and its standard error."""
    return mean_and_error(theirs - mine)


def beside_the_first(losses: Mapping[str, Float[Tensor, "N"]]) -> Figure:
    """By how much each idea's log-perplexity is lower than the first's, and two errors of it."""
    fig, (axes,) = figure(width=8.0, height=3.2)
    first, *others = losses
    found = {name: against(losses[name], losses[first]) for name in others}
    for place, (lower, error) in enumerate(reversed(found.values())):
        axes.errorbar(lower, place, xerr=ERRORS * error, capsize=3, **line_style(0))
    axes.axvline(0, color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(found)), list(found)[::-1])
    axes.set_ylim(-0.6, len(found) - 0.4)
    better = [name for name, (lower, error) in found.items() if lower > ERRORS * error]
    said = listed(better) if better else f"none of {len(found)} ideas"
    between = "\n" if len(first) + len(said) > 50 else " "
    title = f"Clearly better than {first}:{between}{said}"
    label(axes, title, f"log-perplexity below that of {first} ({ERROR_BARS})")
    return fig
