"""Dot plots of perplexity on a log axis, with error bars. A log axis has no zero, so bar lengths would mean nothing."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.measure.paired import wilson

ERROR_BARS = "bars: two standard errors"
FEW = 20  # samples: with fewer, the standard error itself is uncertain, so the figure names n
SHARE_BARS = "bars: Wilson's 95 % interval"


def error_bars(n: int) -> str:
    """Describe the error bars of a figure in which each value is the mean of n samples."""
    return ERROR_BARS if n >= FEW else f"{ERROR_BARS}, n = {n}"


def edged(bars: BarContainer) -> None:
    """Outline error bars in white, so that the half of each that lies on a dark bar is visible."""
    _, caps, lines = bars.errorbar
    for part in (*caps, *lines):
        part.set_path_effects([withStroke(linewidth=3, foreground="white")])


def reach(value: float, error: float) -> tuple[float, float]:
    """Return the lengths of the error bar below and above a perplexity: two standard errors of its logarithm.

    On a log axis both have the same length.
    """
    times = math.exp(ERRORS * error / value)  # delta method: σ(ln p) ≈ σ(p) / p
    return value - value / times, value * times - value


def share_reach(n_right: int | float, n: int) -> tuple[float, float]:
    """Return the lengths of Wilson's 95 % interval below and above the fraction n_right / n, in percentage points."""
    low, high = wilson(n_right, n)
    return 100 * (n_right / n - low), 100 * (high - n_right / n)


def perplexities(values: Mapping[str, tuple[float, float]], title: str, n: int) -> Figure:
    """Plot perplexity with error bars, one row per model; values: (perplexity, standard error), each from n windows."""
    fig, (axes,) = figure(width=7.2, height=2.6)
    names = list(values)[::-1]
    for row, name in enumerate(names):
        value, error = values[name]
        below, above = reach(value, error)
        axes.errorbar(value, row, xerr=[[below], [above]], capsize=3, **line_style(0))
        axes.annotate(f" {value:.1f}", (value + above, row), va="center", fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    log_scale(axes, "x")
    axes.margins(x=0.15)
    label(axes, title, f"perplexity (log scale; {error_bars(n)})")
    return fig


def side_by_side(axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Plot one dot per series in each group, labelled with its value: (perplexity, standard error), on a log axis."""
    step = 0.8 / len(series)
    for index, (name, cells) in enumerate(series.items()):
        positions = [i + step * (index - (len(series) - 1) / 2) for i in range(len(groups))]
        values = [value for value, _ in cells]
        below, above = zip(*(reach(*cell) for cell in cells), strict=True)
        style = line_style(index) | {"linestyle": "none"}
        axes.errorbar(positions, values, yerr=[below, above], label=name, capsize=3, **style)
        for position, value, upper in zip(positions, values, above, strict=True):
            offset = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(f"{value:.1f}" if value < 10 else f"{value:.0f}", (position, value + upper), **offset)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    log_scale(axes, "y")
    axes.margins(y=0.2)
