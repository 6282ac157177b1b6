"""With a teacher and without one, for as many FLOP: what `course reproduce equal_compute` measured beside the KL run.

All runs were read on the same windows, so that looks after equal compute are compared window by window.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import ERRORS, Effect, verdict
from course_lib.lessons.minitron.figures import found
from course_lib.lessons.minitron.figures.found import Measured

NAMES = {"next token": "the cut model by the text", "from scratch": "the same shape from nothing, by the text"}
TOLERANCE = 0.02  # how far the FLOP of two looks may differ; a run looks after whole steps only
Pairs = list[tuple[Row, Row]]


def results() -> Measured:
    """The committed measurement of the runs without a teacher."""
    return load_measured("minitron", "equal_compute")


def looks(measured: Measured, alone: Measured, run: str) -> Pairs:
    """After equal compute: what learns by KL, and a run without a teacher."""
    others = [row for row in found.curve(alone, run) if row["step"]]
    return [
        (teacher, other)
        for teacher in found.curve(measured)
        for other in others
        if abs(other["flops"] - teacher["flops"]) <= TOLERANCE * other["flops"]
    ]


def than_teacher(pairs: Pairs) -> list[Effect]:
    """By how many nats a token the run without a teacher reads worse, at each look."""
    return [log_gap(teacher, other) for teacher, other in pairs]


def curves(measured: Measured | None = None, alone: Measured | None = None) -> Figure:
    """Perplexity over compute, and how far the text alone is behind the teacher."""
    measured = measured or found.results()
    alone = alone or results()
    fig, (left, right) = figure(n_columns=2, width=5.2, height=3.8)
    runs = {"the cut model by KL": found.curve(measured)} | {
        name: found.curve(alone, run) for run, name in NAMES.items()
    }
    for index, (name, run) in enumerate(runs.items()):
        points = [row for row in run if row["step"]]
        left.plot(_petaflops(points), [row["perplexity"] for row in points], label=name, **line_style(index))
    left.axhline(found.dense(measured)["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(left, "y")
    left.legend(frameon=False, fontsize=9, loc="center right")
    pairs = looks(measured, alone, "from scratch")
    _, scratch = pairs[-1]
    title = f"After {scratch['flops'] / 1e15:.3f} petaFLOP: by KL {pairs[-1][0]['perplexity']:.1f},\n"
    label(left, f"{title}from nothing {scratch['perplexity']:,.0f}", "petaFLOP", "perplexity (log scale)")
    _behind(right, looks(measured, alone, "next token"))
    return fig


def _behind(axes: Axes, pairs: Pairs) -> None:
    effects = than_teacher(pairs)
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
    """What becomes of a teacher, and of what the cut model remembers, at equal compute."""
    lines = []
    for claim, run in (
        ("At equal compute the teacher teaches more than the text alone", "next token"),
        ("At equal compute a cut model ends ahead of one from nothing", "from scratch"),
    ):
        pairs = looks(measured, alone, run)
        effects, (teacher, other) = than_teacher(pairs), pairs[-1]
        last = f"{effects[-1].value:+.3f} ± {effects[-1].error:.3f} nats"
        lines += [
            f"Claim: {claim}: {verdict(effects[-1])}",
            f"    after {teacher['step']} steps by KL and {other['step']} without a teacher: {last}; "
            f"over all {len(effects)} looks: {verdict(effects)}",
        ]
    return "\n".join(lines)
