"""Figures of what `course reproduce prompts` measured."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import Measured, listed
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.found import called
from course_lib.lessons.compress.measuring.rivals import WAYS
from course_lib.lessons.compress.tables import over
from course_lib.prompts.compressed.store import DENSE

SPARSE = {"Wanda": "wanda-{}", "SparseGPT": "sparsegpt-{}", "Minitron's cut, as many bytes": "minitron-{}"}
AMOUNTS = {"50": "50 %", "2of4": "2:4", "62.5": "62.5 %", "75": "75 %"}
BITS = (4, 3, 2)
FAR = 1.4  # nats a token: what lies above is at the edge, its number beside it


def gains(measured: Measured | None = None) -> Figure:
    """What a prompt of its own wins, over sparsity and over bits, beside what it wins on the dense model."""
    measured = measured or found.results()
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.8)
    for index, (name, pattern) in enumerate(SPARSE.items()):
        _points(left, measured, [pattern.format(amount) for amount in AMOUNTS], name, index)
    _points(right, measured, [f"gptq-{bits}" for bits in BITS], "GPTQ", 0)
    _points(right, measured, ["sparsegpt-50-4bit"], "50 % pruned as well", 1)
    left.set_xticks(range(len(AMOUNTS)), AMOUNTS.values())
    right.set_xticks(range(len(BITS)), map(str, BITS))
    for axes, n_places in ((left, len(AMOUNTS)), (right, len(BITS))):
        _control(axes, measured)
        axes.set_xlim(-0.4, n_places - 0.6)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), FAR * 1.08)
        axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    names = [name for name in found.models(measured) if name != DENSE]
    more = [effect for name in names if (effect := found.beyond(measured, name))]
    n = sum(effect.holds for effect in more)
    title = f"{n} of {len(more)} compressed models win clearly more by a prompt than the dense one does"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(left, "Pruned", "sparsity", f"nats a token won by a prompt\n({ERROR_BARS})")
    label(right, "Rounded", "bits of a weight", "")
    return fig


def _points(axes: Axes, measured: Measured, models: list[str], name: str, index: int) -> None:
    """Gains with two errors, those above FAR at the edge."""
    there = {place + 0.06 * index: found.gain(measured, each) for place, each in enumerate(models)}
    if not any(there.values()):
        return
    # What was not measured breaks the line.
    heights = [min(effect.value, FAR) if effect else math.nan for effect in there.values()]
    errors = [ERRORS * effect.error if effect and effect.value < FAR else 0 for effect in there.values()]
    axes.errorbar(list(there), heights, errors, capsize=3, label=name, **line_style(index))
    for place, effect in there.items():
        if effect and effect.value >= FAR:
            axes.annotate(f"{effect.value:.1f}", (place + 0.05, FAR), ha="left", va="top", fontsize=8)


def _control(axes: Axes, measured: Measured) -> None:
    """The dense model's gain, as a line with a band of two errors."""
    effect = found.gain(measured, DENSE)
    if effect is None:
        return
    axes.axhline(effect.value, color="black", linestyle=":", label="dense model, own prompt")
    low, high = effect.value - ERRORS * effect.error, effect.value + ERRORS * effect.error
    axes.axhspan(low, high, color=COLOURS[4], alpha=0.3, linewidth=0)


def moved(measured: Measured | None = None) -> Figure:
    """Ratios of perplexities: each prompt on each model."""
    measured = measured or found.results()
    froms, tos = claims.sources(measured), claims.targets(measured)
    fig, (axes,) = figure(width=3.6 + 0.95 * len(tos), height=1.6 + 0.45 * len(froms))
    axes.grid(False)
    for row, source in enumerate(froms):
        for column, to in enumerate(tos):
            cell, alone = found.moved(measured, source, to), found.one(measured, "models", model=to)
            if cell and alone:
                _square(axes, row, column, found.ratio(cell, alone).value, source == to)
    axes.set_xlim(-0.5, max(1, len(tos)) - 0.5)
    axes.set_ylim(max(1, len(froms)) - 0.5, -0.5)
    axes.set_xticks(range(len(tos)), [over.short(name) for name in tos], rotation=20, ha="right")
    axes.set_yticks(range(len(froms)), [over.short(name) for name in froms])
    helped = claims.transferred(measured)[0].values()
    n = sum(effect.holds for effect in helped)
    title = f"{n} of {len(helped)} moved prompts clearly help\n(ratio of perplexities; framed: the model's own prompt)"
    label(axes, title, "used on", "learned on")
    return fig


def _square(axes: Axes, row: int, column: int, ratio: float, own: bool) -> None:
    """The darker, the more is won; a frame around the own prompt."""
    depth = min(1.0, max(0.0, (1 - ratio) / 0.5))
    edge = "black" if own else "white"
    place = (column - 0.45, row - 0.42)
    axes.add_patch(Rectangle(place, 0.9, 0.84, facecolor=str(1 - 0.75 * depth), edgecolor=edge, linewidth=1.6))
    axes.text(column, row, f"{ratio:.2f}", ha="center", va="center", color="white" if depth > 0.5 else "black")


def practised(measured: Measured | None = None) -> Figure:
    """What a prompt and its rivals win on a compressed model, a row each, with the bytes stored beside the model."""
    measured = measured or found.results()
    names = [name for name in WAYS if len(claims.ways(measured, name)) > 1]
    n_rows = max((len(claims.ways(measured, name)) for name in names), default=1)
    fig, panels = figure(n_columns=max(1, len(names)), width=5.6, height=1.5 + 0.42 * n_rows)
    for axes, name in zip(panels, names, strict=False):
        rows, alone = claims.ways(measured, name), found.one(measured, "models", model=name)
        for place, row in enumerate(rows):
            won = found.wins(row, alone)
            look = line_style(0 if row is rows[0] else 1) | {"linestyle": "none"}
            axes.errorbar(won.value, -place, xerr=ERRORS * won.error, capsize=3, **look)
        axes.axvline(found.wins(rows[0], alone).value, color="black", linestyle=":", linewidth=1)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(0, -len(rows), -1), [_beside(row) for row in rows])
        axes.set_ylim(0.6 - len(rows), 0.6)
        better = [row["way"] for row in rows[1:] if found.wins(row, rows[0]).holds]
        which = f"all {len(better)}" if len(better) == len(rows) - 1 > 1 else listed(better) if better else "none"
        title = f"{called(name)}: clearly better than a prompt:\n{which}"
        label(axes, title, f"nats a token won\n({ERROR_BARS}; dotted: the prompt)")
    return fig


def _beside(row: Row) -> str:
    """A way, and what is stored for it."""
    return f"{row['way']}\n{row['bytes'] / 1e3:,.0f} kB beside" if row["bytes"] else f"{row['way']}\nnothing beside"
