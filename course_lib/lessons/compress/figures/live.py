"""Figures of lesson 10 from what its notebook computes."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import percent
from course_lib.lessons.common.verdicts import ERRORS

Row = tuple[str, str, float, float]  # model, prompt, ratio of perplexities, its standard error


def what_learns(numbers: dict[str, int], prompt: int) -> Figure:
    """How many numbers a model has in each of its parts, on a log scale, and how many of them learn."""
    fig, (axes,) = figure(width=7.2, height=2.4)
    rows = {"prompt": prompt, **numbers}
    for place, (name, n) in enumerate(reversed(rows.items())):
        learns = name == "prompt"
        axes.barh(place, n, 0.6, color=COLOURS[1] if learns else COLOURS[4], edgecolor="black")
        axes.text(n * 1.15, place, f"{n:,} {'learn' if learns else 'are frozen'}", va="center", fontsize=9.5)
    axes.set_yticks(range(len(rows)), list(rows)[::-1])
    log_scale(axes, "x")
    axes.set_xticks([10**power for power in range(3, 9)], [f"$10^{power}$" for power in range(3, 9)])
    axes.set_xlim(1e3, 5e10)
    share = prompt / sum(rows.values())
    label(axes, f"{prompt:,} numbers learn, {percent(share, 3)} of all", "numbers (log scale)")
    return fig


def ratios(rows: Sequence[Row]) -> Figure:
    """A dot a prompt with two standard errors; at 1 a prompt does nothing."""
    fig, (axes,) = figure(width=7.4, height=0.9 + 0.34 * len(rows))
    models = list(dict.fromkeys(model for model, *_ in rows))
    for place, (model, _, ratio, error) in enumerate(reversed(rows)):
        look = line_style(models.index(model)) | {"linestyle": "none"}
        axes.errorbar(ratio, place, xerr=ERRORS * error, capsize=3, **look)
    axes.axvline(1, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(rows)), [f"{model}: {prompt}" for model, prompt, *_ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    n = sum(ratio + ERRORS * error < 1 for *_, ratio, error in rows)
    title = f"{n} of {len(rows)} prompts lower the perplexity clearly"
    label(axes, title, f"perplexity with the prompt / without ({ERROR_BARS})")
    return fig
