"""FlexPrefill over γ and over heads, and beside other rules of the same density."""

import math
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.tables import Measured, listed
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import prefill
from course_lib.lessons.sparse_attention.tables.prefill import results


def over_gamma(measured: Measured | None = None) -> Figure:
    """What is read, and what that costs, a line a length."""
    measured = measured or results()
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.6)
    lengths = sorted({row["tokens"] for row in prefill.flex(measured)})
    for index, length in enumerate(lengths):
        found = prefill.flex(measured, length)
        gammas, look = [row["gamma"] for row in found], line_style(index)
        left.plot(gammas, [100 * prefill.density(row) for row in found], label=f"{length} tokens", **look)
        effects = [prefill.above(measured, row) for row in found]
        bars = [ERRORS * effect.error for effect in effects]
        shift = 0.003 * (index - len(lengths) // 2)  # so that bars do not hide each other
        places = [gamma + shift for gamma in gammas]
        right.errorbar(places, [effect.value for effect in effects], bars, capsize=3, **look)
    for axes in (left, right):
        axes.set_xticks(sorted({row["gamma"] for row in prefill.flex(measured)}))
    left.set_ylim(0, 100)
    right.axhline(0, color="black", linewidth=0.8)
    left.legend(frameon=False, fontsize=9, loc="lower right")
    label(left, _least(measured, lengths), "γ", "blocks read (%)")
    label(right, _dearest(measured), "γ", f"nats a token above dense\n({ERROR_BARS})")
    return fig


def _least(measured: Measured, lengths: list[int]) -> str:
    """The ends of the middle column of the comparison."""
    gamma = measured["sizes"]["gamma"]
    shares = {row["tokens"]: prefill.density(row) for row in prefill.flex(measured) if row["gamma"] == gamma}
    ends = dict.fromkeys((lengths[0], lengths[-1]))
    said = [f"{100 * shares[length]:.0f} % at {length}" for length in ends if length in shares]
    return f"γ = {gamma} reads {listed(said)} tokens"


def _dearest(measured: Measured) -> str:
    effects = [prefill.above(measured, row) for row in prefill.flex(measured)]
    n = sum(prefill.below(prefill.CLOSE, measured, row).holds for row in prefill.flex(measured))
    worst = math.exp(max(effect.value for effect in effects)) - 1
    free = f"{n} of {len(effects)} within {100 * prefill.CLOSE:.0f} %"
    return f"At most {100 * worst:.1f} % more perplexity; {free}"


def by_head(measured: Measured | None = None) -> Figure:
    """Density of each head; a ring where a head was query-aware on most texts."""
    measured = measured or results()
    layers = measured["tables"]["heads"]
    fig, (axes,) = figure(width=9.0, height=3.4)
    axes.grid(False)
    density = list(zip(*(row["density"] for row in layers), strict=True))  # heads, layers
    image = axes.imshow(
        [[100 * share for share in row] for row in density], cmap="Greys", vmin=0, vmax=100, aspect="auto"
    )
    fig.colorbar(image, ax=axes, label="blocks read (%)", pad=0.01)
    aware = [
        (row["layer"], head) for row in layers for head, share in enumerate(row["query_aware"]) if share > prefill.AWARE
    ]
    if aware:
        places = list(zip(*aware, strict=True))
        axes.scatter(*places, s=70, facecolors="none", edgecolors="#c8553d", linewidths=1.8)
    axes.set_yticks(range(len(density)))
    first, *_, last = (fmean(share for row in part for share in row["density"]) for part in prefill.thirds(layers))
    title = (
        f"The first third of the layers reads {100 * first:.0f} % of its blocks, the last {100 * last:.0f} %;\n"
        f"{len(aware)} of {len(layers) * len(density)} heads are query-aware (rings)"
    )
    return label(axes, title, "layer", "head").figure


def rivals(measured: Measured | None = None) -> Figure:
    """Nats above dense attention, of rules that read as many blocks."""
    measured = measured or results()
    mine = prefill.chosen(measured)
    others = prefill.of_same_density(measured)
    _, (axes,) = figure(width=7.2, height=2.6)
    for place, row in enumerate((mine, *others)):
        _dot(axes, measured, -place, row)
    axes.set_yticks([-place for place in range(len(others) + 1)], [row["rule"] for row in (mine, *others)])
    axes.set_ylim(-len(others) - 0.5, 0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.margins(x=0.15)
    worse = [row["rule"] for row in others if log_gap(mine, row).holds]
    share = f"{100 * prefill.density(mine):.0f} % of the blocks"
    title = f"{share}: clearly worse than FlexPrefill: {listed(worse) if worse else 'none'}"
    return label(axes, title, f"nats a token above dense ({ERROR_BARS})").figure


def _dot(axes: Axes, measured: Measured, place: int, row: Row) -> None:
    effect = prefill.above(measured, row)
    axes.errorbar(effect.value, place, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.annotate(f"{effect.value:+.3f}", (effect.value, place), xytext=(0, 5), textcoords="offset points", fontsize=9)
