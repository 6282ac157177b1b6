"""How wrong an estimate of the router's gradient is when it is averaged over tokens."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.moe.estimators.table import Row


def errors(rows: Sequence[Row], tokens: Sequence[int], names: dict[str, str]) -> Figure:
    """The error of the mean over T tokens, for the estimators that are named.

    Args:
        names: of the library's estimators, what each is called here; the first is compared with the others.
    """
    fig, (axes,) = figure(width=7.0, height=3.4)
    found = {row.name: row for row in rows}
    for index, (name, shown) in enumerate(names.items()):
        axes.plot(tokens, found[name].errors, label=shown, markersize=5, **line_style(index))
    axes.axhline(1, color=COLOURS[4], linestyle=":", label="no gradient at all")
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    first, *others = names
    said = []
    for other in others:
        at = next((n for n, a, b in zip(tokens, found[other].errors, found[first].errors, strict=True) if a < b), None)
        said.append(f"{names[other]} from {at} tokens" if at else f"{names[other]} never")
    title = f"Better than {names[first]}: " + ",\n".join(said)
    label(axes, title, "tokens averaged over", "error / size of the gradient\n(median)")
    return fig
