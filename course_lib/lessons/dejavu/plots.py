"""The figures of lesson 09 with data: what the notebook computes, and what its experiments measured.

Titles are findings, computed from the data. Dimension key: N windows, L blocks, F neurons.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import listed, percent, rows
from course_lib.lessons.common.style import COLOURS, DASHES, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.dejavu import results
from course_lib.lessons.dejavu.activations import Losses, Quality, fraction_for, loss_difference
from course_lib.lessons.dejavu.costs import Timing
from course_lib.lessons.dejavu.experiments.oracle import ALONE, CHOICES, ORACLE, STATIC
from course_lib.lessons.dejavu.results import Measured
from course_lib.measure.paired import mean_and_error

ENOUGH = 0.95  # of the energy
TITLE_WIDTH = 78  # characters
LOG_FROM = 3.0  # times the dense perplexity: from here on a log scale shows more
CLOSE = 0.95  # a cosine
FASTER = 1.1  # times as fast: what a single short measurement must show before we call it faster
FAR = 3.0  # nats per token: what lies above is drawn at the edge

Speedups = tuple[float, float, float]  # of one token, of the whole answer, and the break-even density


def importances(importance: Float[Tensor, "F"], density: float = 0.1) -> Figure:
    """Plot a histogram of the importance of all neurons for one token on a log scale."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    values = importance.clamp(min=float(importance.quantile(0.01)))  # the few smaller ones are in the first bar
    edges = torch.logspace(float(values.min().log10()), float(values.max().log10()), 60)
    n_kept = max(1, round(density * len(importance)))
    threshold = float(importance.topk(n_kept).values[-1])
    squares = importance.double().square().sort(descending=True).values
    for index, (name, part) in enumerate(
        (("the other neurons", values[values < threshold]), ("the most important", values[values >= threshold]))
    ):
        axes.hist(part.tolist(), edges.tolist(), color=COLOURS[4 if index == 0 else 0], label=name)
    log_scale(axes, "x")
    axes.legend(frameon=False, fontsize=9)
    energy = float(squares[:n_kept].sum() / squares.sum())
    title = f"The most important {100 * density:.0f} % of the neurons hold {100 * energy:.0f} % of the energy"
    label(axes, title, "importance of a neuron, |hᵢ| · ‖wᵢ‖ (log scale)", "neurons")
    return fig


def choice_counts(chosen: Mapping[str, Float[Tensor, "F"]], density: float) -> Figure:
    """Plot for what fraction of the tokens each neuron is chosen, by block; a static set would be a step."""
    fig, (axes,) = figure(width=6.8, height=3.2)
    missed = []
    for index, (name, fraction) in enumerate(chosen.items()):
        ordered = fraction.sort(descending=True).values
        places = 100 * torch.arange(1, len(ordered) + 1) / len(ordered)
        look = line_style(index) | {"markevery": max(1, len(ordered) // 6), "markersize": 4}
        axes.plot(places, 100 * ordered, label=name, **look)
        inside = ordered[: max(1, round(density * len(ordered)))].sum() / ordered.sum()
        missed.append(100 * (1 - float(inside)))
    axes.step([0, 100 * density, 100 * density, 100], [100, 100, 0, 0], color=COLOURS[4], label="static set")
    axes.axhline(100 * density, color=COLOURS[4], linestyle=":", label="random sets")
    axes.set_ylim(-3, 106)
    axes.legend(frameon=False, fontsize=9)
    between = _range(100 - max(missed), 100 - min(missed))
    title = f"The {100 * density:.0f} % that are chosen most often have {between} of all choices"
    label(axes, title, "neurons, the most often chosen first (%)", "chosen for this fraction of the tokens (%)")
    return fig


def energy(curves: Mapping[str, Mapping[str, Float[Tensor, "F"]]]) -> Figure:
    """Plot the fraction of a token's energy in its most important neurons, by model and block."""
    fig, panels = figure(n_columns=len(curves), width=4.6, height=3.2)
    findings = []
    for axes, (model, by_block) in zip(panels, curves.items(), strict=True):
        for index, (block, curve) in enumerate(by_block.items()):
            fractions = 100 * torch.arange(1, len(curve) + 1) / len(curve)
            look = line_style(index) | {"markevery": max(1, len(curve) // 6), "markersize": 4}
            axes.plot(fractions, 100 * curve, label=block, **look)
        axes.axhline(100 * ENOUGH, color=COLOURS[4], linestyle=":")
        needed = [100 * fraction_for(curve, ENOUGH) for curve in by_block.values()]
        findings.append(f"{model} {_range(min(needed), max(needed))}")
        axes.set_ylim(0, 103)
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        label(axes, model, "most important neurons of a token (%)", "")
    panels[0].set_ylabel("fraction of the energy (%)")
    title = f"Neurons that hold {100 * ENOUGH:.0f} % of the energy of a token:\n{', '.join(findings)}"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    return fig


def _range(low: float, high: float) -> str:
    form = "{:.1f}" if high < 10 else "{:.0f}"
    ends = form.format(low), form.format(high)
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def times_dense(losses: Float[Tensor, "N"], dense: Float[Tensor, "N"]) -> tuple[float, float, float]:
    """The perplexity over the dense one, and the ends of two standard errors, window by window."""
    mean, error = mean_and_error(losses - dense)
    return tuple(math.exp(mean + side * ERRORS * error) for side in (0, -1, 1))


def perplexity_over_density(losses: Losses, dense: Float[Tensor, "N"], at: float, what: str = "neurons") -> Figure:
    """Plot how many times the dense perplexity a model has, over the fraction of neurons or heads that is kept.

    Raises:
        ValueError: for more curves than there are styles of lines.
    """
    if len(losses) > len(DASHES):
        raise ValueError(
            f"got {len(losses)} curves; expected at most {len(DASHES)}, since the next would look like the first. "
            "Draw them in two figures."
        )
    fig, (axes,) = figure(width=7.2, height=3.8)
    largest = 1.0
    for index, (name, by_fraction) in enumerate(losses.items()):
        fractions = sorted(by_fraction)
        points = [times_dense(by_fraction[fraction], dense) for fraction in fractions]
        times, low, high = map(torch.tensor, zip(*points, strict=True))
        reach = torch.stack([times - low, high - times]).tolist()
        places = [100 * fraction for fraction in fractions]
        axes.errorbar(places, times.tolist(), yerr=reach, label=name, capsize=3, **line_style(index))
        largest = max(largest, float(times.max()))
    axes.axhline(1, color=COLOURS[4], linestyle=":", label="dense")
    fractions = sorted({fraction for by_fraction in losses.values() for fraction in by_fraction})
    axes.set_xticks([100 * fraction for fraction in fractions], [f"{100 * fraction:.0f}" for fraction in fractions])
    scale = f"({ERROR_BARS})"
    if largest > LOG_FROM:
        log_scale(axes, "y")
        scale = f"(log scale; {ERROR_BARS})"
    axes.legend(frameon=False, fontsize=9)
    label(axes, ranking(losses, at, what), f"{what} kept (%)", f"perplexity, times dense\n{scale}")
    return fig


def ranking(losses: Losses, at: float, what: str = "neurons") -> str:
    """Say what has the lowest perplexity at one fraction, and how many times its perplexity the others have."""
    there = {name: by_fraction[at] for name, by_fraction in losses.items() if at in by_fraction}
    best = min(there, key=lambda name: float(there[name].mean()))
    gaps = {name: loss_difference(there[best], each) for name, each in there.items() if name != best}
    behind = {name: _times(math.exp(effect.value)) for name, effect in gaps.items() if effect.holds}
    start = f"At {100 * at:.0f} % of the {what}"
    if not behind:
        return f"{start} no difference is clear"
    undecided = [name for name in gaps if name not in behind]
    rest = f"; no clear difference to {listed(undecided)}" if undecided else ""
    others = listed([f"{name} ({times})" for name, times in behind.items()])
    return textwrap.fill(f"{start} {best} is clearly better than {others}{rest}", TITLE_WIDTH)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}\N{NO-BREAK SPACE}×" if ratio < 10 else f"{ratio:,.0f}\N{NO-BREAK SPACE}×"


def recall_and_energy(quality: Mapping[str, Sequence[Quality]]) -> Figure:
    """Plot recall (left) and energy (right) over the fraction of neurons; the first way to choose is in the title."""
    fig, panels = figure(n_columns=2, width=4.6, height=3.2)
    first, *others = quality
    for axes, measure in zip(panels, ("recall", "energy"), strict=True):
        for index, (name, points) in enumerate(quality.items()):
            values = [100 * getattr(point, measure) for point in points]
            axes.plot([100 * point.fraction for point in points], values, label=name, **line_style(index))
        middle = len(quality[first]) // 2
        ours, *theirs = (getattr(quality[name][middle], measure) for name in (first, *others))
        fraction = 100 * quality[first][middle].fraction
        log_scale(axes, "x")
        axes.set_xticks([100 * point.fraction for point in quality[first]])
        axes.set_ylim(-3, 103)
        compared = ", ".join(f"{name} {100 * value:.0f} %" for name, value in zip(others, theirs, strict=True))
        title = f"{measure.capitalize()} at {fraction:g} % of the neurons: {100 * ours:.0f} %\n({compared})"
        label(axes, title, "neurons predicted (%, log scale)", f"{measure} (%)")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    return fig


def residual_change(cosine: Float[Tensor, "L"], added: Mapping[str, Float[Tensor, "L"]]) -> Figure:
    """Plot the cosine of the residual stream before and after each block, and the size of what each part adds.

    Args:
        cosine: by block, the median over tokens.
        added: by part of the block, ‖F(X)‖ / ‖X‖, the median over tokens.
    """
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.2)
    numbers = range(len(cosine))
    left.plot(numbers, cosine.tolist(), **(line_style(0) | {"markersize": 4}))
    left.axhline(CLOSE, color=COLOURS[4], linestyle=":")
    left.set_ylim(min(0.0, float(cosine.min())) - 0.03, 1.03)
    n_close = int((cosine > CLOSE).sum())
    label(left, f"Cosine above {CLOSE} in {n_close} of {len(cosine)} blocks", "block", "cosine before and after")
    for index, (name, ratio) in enumerate(added.items()):
        right.plot(numbers, ratio.tolist(), label=name, **(line_style(index) | {"markersize": 4}))
    right.axhline(1, color=COLOURS[4], linestyle=":")
    right.set_yscale("log")
    right.legend(frameon=False, fontsize=9)
    largest = max(float(ratio[1:].max()) for ratio in added.values())
    title = f"After block 0 a part adds at most\n{largest:.2f} times the residual"
    label(right, title, "block", "‖F(X)‖ / ‖X‖ (log scale)")
    return fig


def speedup_over_density(lines: Mapping[str, Mapping[float, Speedups]]) -> Figure:
    """Plot how many times faster a decoded token is over the density, for several costs of choosing and gathering."""
    fig, (axes,) = figure(width=7.2, height=3.6)
    findings = []
    for index, (name, by_density) in enumerate(lines.items()):
        densities = sorted(by_density)
        speedups, _, even = zip(*(by_density[density] for density in densities), strict=True)
        axes.plot([100 * density for density in densities], speedups, label=name, **line_style(index))
        findings.append(f"{name} {100 * even[0]:.0f} %")
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    log_scale(axes, "x")
    axes.legend(frameon=False, fontsize=9)
    between = "\n" if len(lines) > 1 else " "
    title = f"Break-even density:{between}{', '.join(findings)}"
    label(axes, title, "neurons kept (%, log scale)", "speedup of a decoded token")
    return fig


def union(fractions: Mapping[str, Sequence[float]], batch_sizes: Sequence[int]) -> Figure:
    """Plot the fraction of the neurons that a batch reads over the batch size, from one sequence on."""
    fig, (axes,) = figure(width=6.4, height=3.2)
    for index, (name, values) in enumerate(fractions.items()):
        axes.plot(batch_sizes, [100 * value for value in values], label=name, **line_style(index))
        independent = [100 * (1 - (1 - values[0]) ** n) for n in batch_sizes]
        look = {"color": COLOURS[4], "linestyle": ":", "label": None if index else "independent choices"}
        axes.plot(batch_sizes, independent, **look)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batch_sizes), [str(n) for n in batch_sizes])
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    findings = ",\n".join(
        f"{name} {100 * values[-1]:.0f} % ({100 * values[0]:.0f} % per token)" for name, values in fractions.items()
    )
    title = f"Neurons that a batch of {batch_sizes[-1]} reads:\n{findings}"
    label(axes, title, "batch size", "neurons that are read (%)")
    return fig


def time_over_density(timing: Timing) -> Figure:
    """Plot how many times as fast the gathered MLPs are as the dense ones, and the limit that their bytes set."""
    fig, (axes,) = figure(width=6.4, height=3.4)
    densities = sorted(timing.gathered)
    speedups = [timing.speedup(density) for density in densities]
    places = [100 * density for density in densities]
    axes.plot(places, [1 / density for density in densities], label="limit by bytes", **line_style(1))
    axes.plot(places, speedups, label="gathered, this run", **line_style(0))
    axes.axhline(1, color=COLOURS[4], linestyle=":", label=f"dense, {1000 * timing.dense:.0f} ms")
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    faster = [density for density, times in zip(densities, speedups, strict=True) if times > FASTER]
    where = f"up to {100 * max(faster):.0f} % of the neurons" if faster else "at none of these densities"
    least = f"at {places[0]:.0f} % {speedups[0]:.1f} times as fast (limit {1 / densities[0]:.0f})"
    title = f"In this run gathering is faster {where};\n{least}"
    y = f"speedup over dense,\n{timing.n_bytes / 1e6:.0f} MB of MLPs (log scale)"
    label(axes, title, "neurons read (%, log scale)", y)
    return fig


def levels(measured: Measured | None = None) -> Figure:
    """Plot the stored loss increase over the density, by model and way to choose the neurons."""
    measured = measured or results.results()
    names = results.models(measured, "neurons")
    fig, panels = figure(n_columns=len(names), width=5.2, height=3.7)
    for axes, model in zip(panels, names, strict=True):
        beyond: dict[float, list[str]] = {}
        for index, by in enumerate(CHOICES):
            far = _draw_losses(axes, measured, rows(measured, "neurons", model=model, chosen_by=by), by, index)
            for place, value in far.items():
                beyond.setdefault(place, []).append(f"{value:.1f}" if by == ORACLE else f"{by} {value:.1f}")
        for place, those in beyond.items():
            side = "left" if place in (min(beyond), max(beyond)) else "right"
            shift = {"left": 7, "right": -7}[side]
            at = {"xytext": (shift, -4), "textcoords": "offset points", "ha": side, "va": "top"}
            axes.annotate("\n".join(those), (place, FAR), fontsize=8, **at)
        ahead = {
            f"{worse} clearly worse than {better}": results.better(
                measured, "neurons", {"chosen_by": better}, {"chosen_by": worse}
            )
            for better, worse in ((ORACLE, ALONE), (ALONE, STATIC))
        }
        clear = [
            pair
            for pair, effects in ahead.items()
            if all(effect.holds for (name, _), effect in effects.items() if name == model)
        ]
        title = f"{model}, at equal density:\n" + ("\nand ".join(clear) or "no clear difference")
        label(axes, title, "neurons kept (%)", f"loss increase (nats per token;\n{ERROR_BARS})")
    panels[-1].legend(frameon=False, fontsize=9, loc="upper right")
    return fig


def _draw_losses(axes: Axes, measured: Measured, of_rows: Sequence[Row], name: str, index: int) -> dict[float, float]:
    """Draw effects with two errors; return the place and value of points above FAR, which are drawn at the edge."""
    points = sorted(((100 * row["density"], results.above_dense(measured, row)) for row in of_rows), reverse=True)
    places, heights = [place for place, _ in points], [min(effect.value, FAR) for _, effect in points]
    errors = [ERRORS * effect.error if effect.value < FAR else 0 for _, effect in points]
    axes.errorbar(places, heights, errors, capsize=3, label=name, **line_style(index))
    return {place: effect.value for place, effect in points if effect.value >= FAR}


def predicted(measured: Measured | None = None) -> Figure:
    """Plot the stored loss increase of each selector at its highest density, with the bytes that it holds."""
    measured = measured or results.predictions()
    names = results.models(measured, "predicted")
    fig, panels = figure(n_columns=len(names), width=5.4, height=3.5)
    for axes, model in zip(panels, names, strict=True):
        of_model = rows(measured, "predicted", model=model, lookahead=0)
        fraction = results.densities(of_model)[0]
        shown = [row for row in of_model if row["density"] == fraction][::-1]
        effects = [results.above_dense(measured, row) for row in shown]
        errors = [ERRORS * effect.error for effect in effects]
        look = line_style(0) | {"linestyle": "none"}
        axes.errorbar([effect.value for effect in effects], range(len(shown)), xerr=errors, capsize=3, **look)
        ticks = [f"{row['chosen_by']}, {percent(row['bytes'] / row['mlp_bytes'], 1)}" for row in shown]
        axes.set_yticks(range(len(shown)), ticks)
        axes.set_ylim(-0.6, len(shown) - 0.4)
        close = sum(effect.below(NO_LOSS).holds for effect in effects)
        title = f"{model}, {percent(fraction)} of the neurons: {close} of {len(shown)}\nclearly cost less than "
        label(axes, f"{title}{NO_LOSS} nats", f"loss increase (nats per token;\n{ERROR_BARS})")
    panels[0].set_ylabel("chosen by, and its bytes\nin % of those of the MLPs")
    return fig


def batch(measured: Measured | None = None) -> Figure:
    """Plot the stored fraction of the neurons that any of B sequences needs, and that of independent choices."""
    measured = measured or results.results()
    of_model = {model: rows(measured, "batch", model=model) for model in results.models(measured, "batch")}
    sizes = [row["batch"] for row in next(iter(of_model.values()))]
    return union({model: [fmean(row["shares"]) for row in each] for model, each in of_model.items()}, sizes)
