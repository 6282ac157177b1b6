"""Tokens that a pass of the model gives, by draft."""

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import drafts
from course_lib.lessons.sparse_attention.experiments.experiment_drafts import COPYING, RUNNING
from course_lib.lessons.sparse_attention.tables.drafts import results


def passes(measured: Measured | None = None) -> Figure:
    """Measured with two errors, and what α of the given text foretells, on running text and on copying."""
    measured = measured or results()
    fig, panels = figure(n_columns=2, width=5.0, height=3.2)
    names = drafts.drafts(measured)
    for axes, kind in zip(panels, (RUNNING, COPYING), strict=True):
        for place, draft in enumerate(names):
            mean, error = drafts.tokens_a_pass(measured, draft, kind)
            name = "" if place else "measured"
            axes.errorbar(mean, -place, xerr=ERRORS * error, capsize=3, label=name, **line_style(0))
            foretold = drafts.expected(measured, draft, kind)
            name = "" if place else "foretold by α of\nthe given text"
            axes.plot(foretold, -place, "|", markersize=18, color=COLOURS[1], label=name)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlim(0.8, measured["sizes"]["k"] + 1.2)
        axes.set_yticks([-place for place in range(len(names))], names if kind == RUNNING else [""] * len(names))
        axes.set_ylim(-len(names) + 0.4, 0.6)
        best = max(names, key=lambda draft: drafts.tokens_a_pass(measured, draft, kind)[0])
        loads = 100 / drafts.tokens_a_pass(measured, best, kind)[0]
        title = f"{kind.capitalize()}: {loads:.0f} loads for 100 tokens\n(fewest, with {best})"
        label(axes, title, f"tokens a pass ({ERROR_BARS})")
    panels[0].legend(frameon=False, fontsize=9, loc="upper right")
    return fig
