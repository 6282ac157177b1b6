"""Perplexities on a log scale: dots with two standard errors. Without a 0 on the axis a bar's length says nothing."""

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
FEW = 20  # samples: the error of fewer is known roughly at best, so the figure says how many they were
SHARE_BARS = "bars: Wilson's 95 % interval"


def error_bars(n: int) -> str:
    """What the bars of a figure are, where each comes from n samples."""
    return ERROR_BARS if n >= FEW else f"{ERROR_BARS}, n = {n}"


def edged(bars: BarContainer) -> None:
    """A white edge around error bars, so that the half of each that lies on a dark bar is seen."""
    _, caps, lines = bars.errorbar
    for part in (*caps, *lines):
        part.set_path_effects([withStroke(linewidth=3, foreground="white")])


def reach(value: float, error: float) -> tuple[float, float]:
    """How far below and above a perplexity two standard errors of its logarithm reach, alike on a log axis."""
    times = math.exp(ERRORS * error / value)
    return value - value / times, value * times - value


def share_reach(n_right: int | float, n: int) -> tuple[float, float]:
    """How far below and above a share of n questions Wilson's 95 % interval reaches, both in per cent."""
    low, high = wilson(n_right, n)
    return 100 * (n_right / n - low), 100 * (high - n_right / n)


def perplexities(values: Mapping[str, tuple[float, float]], title: str, n: int) -> Figure:
    """Perplexity with its standard error, a line a model, each from n windows."""
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
    """In each group a dot a series, with the number above it: (perplexity, standard error), on a log scale."""
    step = 0.8 / len(series)
    for index, (name, cells) in enumerate(series.items()):
        places = [i + step * (index - (len(series) - 1) / 2) for i in range(len(groups))]
        values = [value for value, _ in cells]
        below, above = zip(*(reach(*cell) for cell in cells), strict=True)
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(places, values, yerr=[below, above], label=name, capsize=3, **look)
        for place, value, upper in zip(places, values, above, strict=True):
            beside = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(f"{value:.1f}" if value < 10 else f"{value:.0f}", (place, value + upper), **beside)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    log_scale(axes, "y")
    axes.margins(y=0.2)
