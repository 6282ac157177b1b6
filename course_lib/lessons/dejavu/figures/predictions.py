"""Figures of what `course reproduce dejavu_predictors` measured."""

from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.results import percent, rows
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.dejavu import results
from course_lib.lessons.dejavu.experiments.steps.predicted import PREDICTOR
from course_lib.lessons.dejavu.results import GATED, Measured


def predicted(measured: Measured | None = None) -> Figure:
    """Nats above the dense model by what chooses, at the largest share of the neurons, with the bytes that it holds."""
    measured = measured or results.predictions()
    names = results.models(measured, "predicted")
    fig, panels = figure(n_columns=len(names), width=5.4, height=3.5)
    for axes, model in zip(panels, names, strict=True):
        mine = rows(measured, "predicted", model=model, lookahead=0)
        share = results.densities(mine)[0]
        these = [row for row in mine if row["density"] == share][::-1]
        effects = [results.above_dense(measured, row) for row in these]
        errors = [ERRORS * effect.error for effect in effects]
        look = line_style(0) | {"linestyle": "none"}
        axes.errorbar([effect.value for effect in effects], range(len(these)), xerr=errors, capsize=3, **look)
        ticks = [f"{row['chosen_by']}, {percent(row['bytes'] / row['mlp_bytes'], 1)}" for row in these]
        axes.set_yticks(range(len(these)), ticks)
        axes.set_ylim(-0.6, len(these) - 0.4)
        close = sum(effect.below(results.CHEAP).holds for effect in effects)
        title = f"{model}, {percent(share)} of the neurons: {close} of {len(these)}\nclearly cost less than "
        label(axes, f"{title}{results.CHEAP} nats", f"nats above dense ({ERROR_BARS})")
    panels[0].set_ylabel("chosen by, bytes of the MLPs'")
    return fig


def lookahead(measured: Measured) -> Figure:
    """Recall by block, of predictors that read x some blocks earlier."""
    fig, (axes,) = figure(width=6.8, height=3.4)
    trained = rows(measured, "recall", model=GATED, chosen_by=PREDICTOR)
    means = {}
    for index, ahead in enumerate(sorted({row["lookahead"] for row in trained})):
        blocks = [row for row in trained if row["lookahead"] == ahead]
        means[ahead] = fmean(row["recall"] for row in blocks)
        name = f"lookahead {ahead}, mean {means[ahead]:.3f}"
        axes.plot([row["block"] for row in blocks], [row["recall"] for row in blocks], label=name, **line_style(index))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9)
    last = max(means)
    title = f"{GATED}: a lookahead of {last} changes the mean recall by {means[last] - means[0]:+.3f}"
    label(axes, title, "block", "recall of the active neurons")
    return fig
