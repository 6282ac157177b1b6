"""With a teacher and without one, for as many FLOP: what `course reproduce equal_compute` measured beside the KL run.

All runs were read on the same windows, so that looks after equal compute are compared window by window.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.minitron import claims, results
from course_lib.lessons.minitron.results import Measured

NAMES = {"next token": "the cut model by the text", "from scratch": "the same shape from nothing, by the text"}


def curves(measured: Measured | None = None, alone: Measured | None = None) -> Figure:
    """Perplexity over compute, and how far the text alone is behind the teacher."""
    measured = measured or results.results()
    alone = alone or results.without_teacher()
    fig, (left, right) = figure(n_columns=2, width=5.2, height=3.8)
    runs = {"the cut model by KL": results.curve(measured)} | {
        name: results.curve(alone, run) for run, name in NAMES.items()
    }
    for index, (name, run) in enumerate(runs.items()):
        points = [row for row in run if row["step"]]
        left.plot(_petaflops(points), [row["perplexity"] for row in points], label=name, **line_style(index))
    left.axhline(results.dense(measured)["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(left, "y")
    left.legend(frameon=False, fontsize=9, loc="center right")
    pairs = results.looks(measured, alone, "from scratch")
    _, scratch = pairs[-1]
    title = f"After {scratch['flops'] / 1e15:.3f} petaFLOP: by KL {pairs[-1][0]['perplexity']:.1f},\n"
    label(left, f"{title}from nothing {scratch['perplexity']:,.0f}", "petaFLOP", "perplexity (log scale)")
    _behind(right, results.looks(measured, alone, "next token"))
    return fig


def _behind(axes: Axes, pairs: results.Pairs) -> None:
    effects = results.than_teacher(pairs)
    errors = [ERRORS * effect.error for effect in effects]
    values = [effect.value for effect in effects]
    axes.errorbar(_petaflops([other for _, other in pairs]), values, errors, capsize=3, **line_style(0))
    axes.axhline(0, color=COLOURS[4], linestyle=":")
    ahead, behind = sum(effect.holds for effect in effects), sum(effect.fails for effect in effects)
    title = f"Of {len(effects)} looks the teacher is clearly ahead in {ahead},\nand clearly behind in {behind}"
    label(axes, title, "petaFLOP", f"nats a token, text alone above KL\n({ERROR_BARS})")


def _petaflops(run: list[Row]) -> list[float]:
    return [row["flops"] / 1e15 for row in run]


def claims_table(measured: Measured, alone: Measured) -> str:
    """What becomes of a teacher, and of what the cut model remembers, at equal compute: last, and at every look."""
    return report((claims.TEACHER, claims.TEACHER_ALWAYS, claims.EQUAL_COMPUTE, claims.SCRATCH_ALWAYS), measured, alone)
