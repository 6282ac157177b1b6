"""Figures for the deck of lesson 01: those of its notebook, with data measured where the deck is built or committed."""

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.data import corpora
from course_lib.lessons.common.dots import error_bars
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, load_published, percent
from course_lib.lessons.common.verdicts import ERRORS, of_samples, verdict
from course_lib.lessons.patterns import budget, claims, figures, tables
from course_lib.lessons.patterns.experiment import measured
from course_lib.lessons.patterns.measure import (
    dynamic_and_static,
    inputs_of,
    keep_most_active,
    one_of_each,
    stored_in_each_group,
)
from course_lib.models import blocks, head, linears, load_model, weight_of
from course_lib.sparsity.patterns import Unstructured

_model = lru_cache(maxsize=1)(load_model)


def _weight(block: int = 10, name: str = "mlp.up_proj") -> Tensor:
    return weight_of(linears(blocks(_model()[0])[block])[name])


def _held_out() -> Tensor:
    return corpora.windows("wikipedia", 5, 128, _model()[1], split="evaluation", seed=0)


def masks() -> Figure:
    return figures.masks(_weight(), one_of_each(0.5))


def freedom() -> Figure:
    return figures.freedom(_weight(), one_of_each(0.5))


def groups() -> Figure:
    return figures.groups(stored_in_each_group(Unstructured(0.5).keep(_weight().abs())))


def square_kept_curves() -> Figure:
    return figures.square_kept_curves(_weight())


def perplexities() -> Figure:
    return figures.perplexities(measured(), vocabulary=weight_of(head(_model()[0])).shape[0])


def order() -> Figure:
    """How much each pattern costs above the freer one before it, with two standard errors, and the verdict."""
    fig, panels = figure(2, width=5.2, height=3.8)
    for axes, (sparsity, found) in zip(panels, measured().items(), strict=False):
        steps = tables.order_effects(found)
        for row, effect in enumerate(steps.values()):
            look = line_style(0) | {"linestyle": "none", "capsize": 3}
            axes.errorbar(effect.value, row, xerr=ERRORS * effect.error, **look)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(steps)), list(steps))
        axes.set_ylim(len(steps) - 0.4, -0.6)
        title = f"{percent(sparsity)} removed, regular costs more:\n{verdict(steps)}"
        label(axes, title, f"nats a token ({error_bars(len(found['dense'].losses))})")
    return fig


def papers() -> Figure:
    """Perplexity over that of the dense model by pattern, half of the weights removed: published and measured."""
    fig, (axes,) = figure(width=5.2, height=4.6)
    series: dict[str, dict[str, float]] = {}
    for row in load_published("patterns")["tables"]["perplexity"]:
        series.setdefault(f"{row['model']}, {row['method']} (paper)", {})[row["pattern"]] = row["perplexity"]
    ours = measured()[0.5]
    series["SmolLM2-135M, magnitude (measured)"] = {name: found.value for name, found in ours.items()}
    names = ("unstructured", "4:8", "2:4")
    for index, (name, values) in enumerate(series.items()):
        points = [(spot, values[kind] / values["dense"]) for spot, kind in enumerate(names) if kind in values]
        axes.plot(*zip(*points, strict=True), label=name, **line_style(index))
    kinds = [rows_of["2:4"] / rows_of["unstructured"] for rows_of in series.values()]
    log_scale(axes, "y")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.legend(frameon=False, fontsize=9)
    title = f"2:4 has {min(kinds):.1f} to {max(kinds):.1f} times the perplexity of single weights"
    label(axes, title, "half of the weights removed", "perplexity over dense (log scale)")
    return fig


def ideas() -> Figure:
    """The simple ideas of the open task: log-perplexity above the first, window by window."""
    rows = budget.stored(load_measured("patterns", "budget")["tables"]["ideas"])
    first = next(iter(rows.values()))
    fig, (axes,) = figure(width=7.4, height=4.2)
    effects = {name: of_samples(made.losses - first.losses) for name, made in rows.items()}
    for row, effect in enumerate(effects.values()):
        look = line_style(0) | {"linestyle": "none", "capsize": 3}
        axes.errorbar(effect.value, row, xerr=ERRORS * effect.error, **look)
    axes.axvline(0, color="black", linewidth=0.8)
    read = {name: figures.rounded(made.losses.mean().exp().item()) for name, made in rows.items()}
    axes.set_yticks(range(len(rows)), [f"{name}: {value}" for name, value in read.items()], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.8)
    better = sum((-effect.value) > ERRORS * effect.error for effect in effects.values())
    others = f"{better} of {len(rows) - 1} others are better than the first"
    title = f"{percent(budget.BUDGET)} of the bytes: {others}"
    label(axes, title, f"nats a token above the first ({error_bars(len(first.losses))})", "choice: perplexity")
    return fig


def bytes_per_weight() -> Figure:
    return figures.bytes_per_weight(_weight())


def take_home() -> Figure:
    """Claims with the published value, ours and the verdict."""
    return drawn_claims((claims.TWO_FOUR_COSTS, claims.ORDER_QUARTER, claims.CSR_AT_HALF))


def activity() -> Figure:
    model = _model()[0]
    layer = linears(blocks(model)[15])["mlp.down_proj"]
    neurons = inputs_of(model, layer, _held_out())
    errors = dynamic_and_static(weight_of(layer), neurons, (0.05, 0.1, 0.25, 0.5, 0.75))
    return figures.activity(keep_most_active(neurons, neurons.shape[1] // 10), errors)
