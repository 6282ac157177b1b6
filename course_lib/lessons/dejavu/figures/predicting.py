"""What predicted sets hold, by their size."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.dejavu.live.predicting import Found


def recall_and_energy(found: Mapping[str, Sequence[Found]]) -> Figure:
    """Left: the share of the active neurons that were found. Right: their share of the energy. The first is ours."""
    fig, panels = figure(n_columns=2, width=4.6, height=3.2)
    first, *others = found
    for axes, measure in zip(panels, ("recall", "energy"), strict=True):
        for index, (name, rows) in enumerate(found.items()):
            values = [100 * getattr(row, measure) for row in rows]
            axes.plot([100 * row.share for row in rows], values, label=name, **line_style(index))
        middle = len(found[first]) // 2
        ours, *theirs = (getattr(found[name][middle], measure) for name in (first, *others))
        share = 100 * found[first][middle].share
        log_scale(axes, "x")
        axes.set_ylim(-3, 103)
        beside = ", ".join(f"{name} {100 * value:.0f} %" for name, value in zip(others, theirs, strict=True))
        title = f"{measure.capitalize()} at {share:g} % of the neurons: {100 * ours:.0f} %\n({beside})"
        label(axes, title, "neurons predicted (%, log scale)", f"{measure} (%)")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    return fig
