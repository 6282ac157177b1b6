"""Figures of what `course reproduce moe` measured."""

from statistics import fmean

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import Measured, rows


def largest_loads(measured: Measured, names: tuple[str, ...]) -> Figure:
    """By step: the share that the busiest expert of a block has, mean over blocks and seeds."""
    fig, (axes,) = figure(width=7.0, height=3.4)
    ends = {}
    for index, name in enumerate(names):
        found = rows(measured, "loads", model=name)
        steps = sorted({row["step"] for row in found})
        means = [100 * fmean(max(row["load"]) for row in found if row["step"] == step) for step in steps]
        axes.plot(steps, means, label=name, **line_style(index))
        ends[name] = means[-1]
        equal = 100 / len(found[0]["load"])
    axes.axhline(equal, color=COLOURS[4], linestyle=":", label="an equal share")
    log_scale(axes, "x")
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    said = ", ".join(f"{name} {end:.0f} %" for name, end in ends.items())
    label(axes, f"The busiest expert of a block has at last:\n{said}", "step", "share of all choices (%)")
    return fig
