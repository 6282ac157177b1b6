"""Bars that several lessons draw."""

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, log_scale


def perplexities(values: dict[str, tuple[float, float]], title: str) -> Figure:
    """Perplexity with its standard error, one bar a model."""
    fig, (axes,) = figure(width=6.4, height=2.6)
    names = list(values)[::-1]
    mean, error = zip(*(values[name] for name in names), strict=True)
    axes.barh(names, mean, xerr=error, color=COLOURS[0], height=0.6, error_kw={"elinewidth": 1, "capsize": 3})
    log_scale(axes, "x")
    for index, value in enumerate(mean):
        axes.annotate(f" {value:.1f}", (value + error[index], index), va="center", fontsize=9)
    axes.margins(x=0.15)
    label(axes, title, "perplexity (log scale)")
    return fig
