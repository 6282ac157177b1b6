"""Figures of what `course reproduce dejavu` measured."""

from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import listed, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.dejavu import results
from course_lib.lessons.dejavu.experiments.steps.neurons import ALONE, CHOICES, ORACLE, STATIC
from course_lib.lessons.dejavu.results import GATED, Measured

FAR = 3.0  # nats a token: what lies above is at the edge


def levels(measured: Measured | None = None) -> Figure:
    """Nats above the dense model by share of the neurons, each model's ways to choose."""
    measured = measured or results.results()
    names = results.models(measured, "neurons")
    fig, panels = figure(n_columns=len(names), width=5.2, height=3.7)
    for axes, model in zip(panels, names, strict=True):
        beyond: dict[float, list[str]] = {}
        for index, by in enumerate(CHOICES):
            far = _losses(axes, measured, rows(measured, "neurons", model=model, chosen_by=by), by, index)
            for place, value in far.items():
                beyond.setdefault(place, []).append(f"{value:.1f}" if by == ORACLE else f"{by} {value:.1f}")
        for place, those in beyond.items():
            side = "left" if place in (min(beyond), max(beyond)) else "right"
            shift = {"left": 7, "right": -7}[side]
            at = {"xytext": (shift, -4), "textcoords": "offset points", "ha": side, "va": "top"}
            axes.annotate("\n".join(those), (place, FAR), fontsize=8, **at)
        ahead = {
            f"{worse} than {better}": results.better(measured, "neurons", {"chosen_by": better}, {"chosen_by": worse})
            for better, worse in ((ORACLE, ALONE), (ALONE, STATIC))
        }
        clear = [
            said
            for said, effects in ahead.items()
            if all(effect.holds for (name, _), effect in effects.items() if name == model)
        ]
        title = f"{model}: clearly worse at equal density:\n{listed(clear) if clear else 'none'}"
        label(axes, title, "share of the neurons (%)", f"nats a token above dense\n({ERROR_BARS})")
    panels[-1].legend(frameon=False, fontsize=9, loc="upper right")
    return fig


def _losses(axes: Axes, measured: Measured, these: Sequence[Row], name: str, index: int) -> dict[float, float]:
    """Effects with two errors; a point above FAR is drawn at the edge, and returned: its place and its value."""
    points = sorted(((100 * row["density"], results.above_dense(measured, row)) for row in these), reverse=True)
    places, heights = [place for place, _ in points], [min(effect.value, FAR) for _, effect in points]
    errors = [ERRORS * effect.error if effect.value < FAR else 0 for _, effect in points]
    axes.errorbar(places, heights, errors, capsize=3, label=name, **line_style(index))
    return {place: effect.value for place, effect in points if effect.value >= FAR}


def slow_change(measured: Measured) -> Figure:
    """By block: the cosine of the residual before and behind it, and the length of what the MLP adds."""
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.2)
    for index, model in enumerate(results.models(measured, "slow_change")):
        blocks = rows(measured, "slow_change", model=model)
        places = [row["block"] for row in blocks]
        left.plot(places, [row["cosine"] for row in blocks], label=model, **line_style(index))
        right.plot(places, [row["size_ratio_mlp"] for row in blocks], label=model, **line_style(index))
    first, *others = rows(measured, "slow_change", model=GATED)
    right.set_yscale("log")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(frameon=False, fontsize=9)
    title = f"{GATED}: {first['cosine']:.2f} in block 0, then {min(row['cosine'] for row in others):.2f} or more"
    label(left, title, "block", "cosine of the residual\nbefore and behind (median)")
    most = max(row["size_ratio_mlp"] for row in others)
    label(right, f"Behind block 0 the MLP adds at most {most:.2f} of it", "block", "‖MLP(X)‖ / ‖X‖ (median, log)")
    return fig


def batch(measured: Measured | None = None) -> Figure:
    """The share of the neurons that some of B sequences need, beside that of independent choices."""
    measured = measured or results.results()
    fig, (axes,) = figure(width=6.0, height=3.4)
    ends = {}
    for index, model in enumerate(results.models(measured, "batch")):
        those = rows(measured, "batch", model=model)
        sizes, shares = [row["batch"] for row in those], [100 * fmean(row["shares"]) for row in those]
        axes.plot(sizes, shares, label=model, **line_style(index))
        ends[model] = f"{model} {shares[-1]:.0f} %"
        alone = shares[0] / 100
        independent = [100 * (1 - (1 - alone) ** size) for size in sizes]
        axes.plot(sizes, independent, color=COLOURS[4], linestyle=":", label="independent" if index == 0 else None)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    label(axes, f"Needed by {sizes[-1]} sequences: {listed(list(ends.values()))}", "sequences at once", "neurons (%)")
    return fig
