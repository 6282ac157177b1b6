"""Loads of the dense model for 100 tokens, by draft."""

from matplotlib.figure import Figure

from course_lib.lessons.capstone.experiments.experiment_capstone_drafts import COPYING, RUNNING
from course_lib.lessons.capstone.found import of_drafts
from course_lib.lessons.capstone.tables.drafts import GREEDY, Drafted, all_drafts
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.measure.paired import mean_and_error


def passes(measured: Measured | None = None) -> Figure:
    """On running text and on copying: lesson 11's drafts, sampled, and the capstone's own, greedy."""
    measured = measured or of_drafts()
    kinds = {kind: all_drafts(measured, kind) for kind in (RUNNING, COPYING)}
    n_rows = max(map(len, kinds.values()))
    fig, panels = figure(n_columns=2, width=4.7, height=0.3 * n_rows + 1.3)
    for axes, (kind, found) in zip(panels, kinds.items(), strict=True):
        for place, each in enumerate(found):
            loads, error = _loads(each)
            greedy = each.how == GREEDY
            look = {"color": COLOURS[1] if greedy else COLOURS[0], "marker": "s" if greedy else "o"}
            axes.errorbar(loads, -place, xerr=ERRORS * error, capsize=3, linestyle="none", **look)
        names = [f"{each.name}, {each.how}" for each in found]
        axes.set_yticks([-place for place in range(len(found))], names, fontsize=9)
        axes.tick_params(axis="y", labelleft=axes is panels[0])
        axes.set_ylim(0.6 - n_rows, 0.6)
        axes.set_xlim(0, 105)
        axes.axvline(100, color="black", linewidth=0.8)
        fewest = min(found, key=lambda each: _loads(each)[0])
        title = f"{kind.capitalize()}: fewest loads, {_loads(fewest)[0]:.0f},\nwith {fewest.name}, {fewest.how}"
        label(axes, title, f"loads of the model for 100 tokens\n({ERROR_BARS})")
    return fig


def _loads(each: Drafted) -> tuple[float, float]:
    """100 passes over the tokens of each, and its error over texts."""
    return mean_and_error([100 / tokens for tokens in each.tokens_a_pass])
