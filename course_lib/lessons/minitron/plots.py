"""Figures of lesson 05, for notebook and deck. Without arguments they show stored results.

Dimension key: L blocks, F neurons, D width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.ideas import beside_the_first
from course_lib.lessons.common.results import listed, load_bench, load_measured, percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.minitron import results
from course_lib.lessons.minitron.experiments.shapes import Attempt, stored
from course_lib.lessons.minitron.results import Measured

PALE = "#e3e7ec"
WIDTH, NEURONS, KEYS = 5.76, 15.36, 1.92  # of a block of SmolLM2-135M, in hundreds


@dataclass(frozen=True)
class Matrix:
    """A weight matrix drawn to scale, outputs downwards and inputs to the right, and its position in the drawing."""

    name: str
    outputs: float
    inputs: float
    left: float | int
    top: float | int


MATRICES = (
    Matrix("q", WIDTH, WIDTH, 0, 0),
    Matrix("k", KEYS, WIDTH, 7.2, 0),
    Matrix("v", KEYS, WIDTH, 14.4, 0),
    Matrix("o", WIDTH, WIDTH, 21.6, 0),
    Matrix("gate", NEURONS, WIDTH, 0, 8.6),
    Matrix("up", NEURONS, WIDTH, 7.2, 8.6),
    Matrix("down", WIDTH, NEURONS, 14.4, 8.6),
)

# Strips that are pruned: matrix -> (first, last) of the outputs or of the inputs, in hundreds. A head has size 64.
ROWS, COLUMNS = "outputs", "inputs"
Strips = dict[str, tuple[str, float, float]]
NEURON: Strips = {"gate": (ROWS, 6.0, 6.25), "up": (ROWS, 6.0, 6.25), "down": (COLUMNS, 6.0, 6.25)}
GROUP: Strips = {
    "q": (ROWS, 1.92, 3.84),
    "k": (ROWS, 0.64, 1.28),
    "v": (ROWS, 0.64, 1.28),
    "o": (COLUMNS, 1.92, 3.84),
}
CHANNEL: Strips = dict.fromkeys(("q", "k", "v", "gate", "up"), (COLUMNS, 3.0, 3.25))
CHANNEL |= dict.fromkeys(("o", "down"), (ROWS, 3.0, 3.25))


def pruned_together() -> Figure:
    """Draw the seven matrices of a block to scale, with the strips that are pruned together in dark blue."""
    fig, panels = figure(n_columns=3, width=4.3, height=4.0)
    strips_by_title = {
        "one neuron: two rows, one column": NEURON,
        "one key-value group with three query heads": GROUP,
        "one channel: a strip of all seven": CHANNEL,
    }
    for axes, (name, strips) in zip(panels, strips_by_title.items(), strict=True):
        _draw_matrices(axes, strips)
        axes.set_title(name, loc="left", fontsize=12)
    fig.suptitle("The strips of the neuron and of the channel are 25 times too thick", x=0.01, ha="left", fontsize=12)
    return fig


def _draw_matrices(axes: Axes, strips: Strips) -> None:
    for matrix in MATRICES:
        look = {"facecolor": PALE, "edgecolor": COLOURS[4], "linewidth": 0.8}
        axes.add_patch(Rectangle((matrix.left, matrix.top), matrix.inputs, matrix.outputs, **look))
        if matrix.name in strips:
            side, first, last = strips[matrix.name]
            dark = {"facecolor": COLOURS[0]}
            if side == ROWS:
                axes.add_patch(Rectangle((matrix.left, matrix.top + first), matrix.inputs, last - first, **dark))
            else:
                axes.add_patch(Rectangle((matrix.left + first, matrix.top), last - first, matrix.outputs, **dark))
        axes.text(matrix.left, matrix.top - 0.25, matrix.name, fontsize=11, va="bottom")
    axes.text(21.6, 17.0, "outputs ↓\ninputs →", fontsize=11, va="center")
    axes.set(xlim=(-0.4, 30.4), ylim=(24.4, -1.6))
    axes.axis("off")


def teacher_and_student() -> Figure:
    """Draw distillation: both models receive the same text, and only the student is trained."""
    fig, (axes,) = figure(width=9.2, height=3.2)
    boxes = {
        "text": (0.0, 1.0, "text", "white"),
        "teacher": (2.6, 1.9, "teacher: the dense model,\nno gradient", PALE),
        "student": (2.6, 0.1, "student: the pruned model,\nis trained", "#f6e7c4"),
        "loss": (7.4, 1.0, "τ² Σ p log(p / q),\nmean over tokens", "white"),
    }
    widths = {"text": 1.2, "teacher": 3.2, "student": 3.2, "loss": 2.6}
    for name, (left, low, text, fill) in boxes.items():
        shape = {"boxstyle": "round,pad=0.06", "facecolor": fill, "edgecolor": COLOURS[0]}
        axes.add_patch(FancyBboxPatch((left, low), widths[name], 0.9, **shape))
        axes.text(left + widths[name] / 2, low + 0.45, text, ha="center", va="center", fontsize=11)
    style = {"arrowstyle": "->", "linewidth": 1.5, "color": COLOURS[0]}
    for start, end in (
        ((1.3, 1.6), (2.5, 2.3)),
        ((1.3, 1.3), (2.5, 0.6)),
        ((5.9, 2.3), (7.3, 1.6)),
        ((5.9, 0.6), (7.3, 1.3)),
    ):
        axes.annotate("", end, start, arrowprops=style)
    axes.text(6.5, 2.25, "p", fontsize=12)
    axes.text(6.5, 0.5, "q", fontsize=12)
    axes.annotate(
        "gradient", (5.9, 0.25), (8.6, 0.25), arrowprops=style | {"linestyle": "--"}, va="center", fontsize=11
    )
    axes.set(xlim=(-0.2, 10.2), ylim=(-0.1, 3.0))
    axes.axis("off")
    axes.set_title("Both models receive the same text; only the student receives a gradient", loc="left", fontsize=11)
    return fig


# Figures of what the notebook computes.


def pruned_scores(scores: Float[Tensor, "L F"], n_kept: int) -> Figure:
    """Plot, for each block, the fraction of all scores and of all squared scores that the pruned neurons hold."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    fractions = {}
    for index, (name, values) in enumerate({"scores": scores, "squared scores": scores.square()}.items()):
        ranked = values.sort(dim=1, descending=True).values
        fractions[name] = 100 * ranked[:, n_kept:].sum(1) / ranked.sum(1)
        axes.plot(fractions[name], markersize=4, label=f"of the {name}", **line_style(index))
    n_pruned = 100 * (1 - n_kept / scores.shape[1])
    axes.axhline(n_pruned, color=COLOURS[4], linestyle=":", label="if all scores were equal")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    low, high = fractions["scores"].min(), fractions["scores"].max()
    title = f"The lowest {n_pruned:.0f} % of neurons hold {low:.0f} to {high:.0f} % of a block's scores"
    label(axes, title, "block", "held by pruned neurons (%)")
    return fig


def block_influence(values: Float[Tensor, "L"], n_pruned: int) -> Figure:
    """Plot the influence of each block; the blocks with the lowest influence are dark."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    lowest = set(values.argsort()[:n_pruned].tolist())
    axes.bar(range(len(values)), values, color=[COLOURS[0 if i in lowest else 4] for i in range(len(values))])
    axes.set_ylim(0, 0.3)
    axes.annotate(f"{values[0]:.2f}", (0, 0.29), xytext=(8, -2), textcoords="offset points", fontsize=9)
    first, last = min(lowest), max(lowest)
    name = f"blocks {first} to {last}" if last - first + 1 == n_pruned else f"{n_pruned} blocks"
    title = f"Lowest influence: {name} (dark); highest: block {int(values.argmax())}"
    label(axes, title, "block", "1 − cos(input, output)")
    return fig


def channels(scores: Float[Tensor, "D"], n_pruned: int) -> Figure:
    """Plot the score of each channel; the lowest would be pruned."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    pruned: Bool[Tensor, "D"] = torch.zeros(len(scores), dtype=torch.bool)
    pruned[scores.argsort()[:n_pruned]] = True
    numbers = torch.arange(len(scores))
    for index, (name, chosen) in enumerate({"pruned": pruned, "kept": ~pruned}.items()):
        look = line_style(index)
        axes.scatter(numbers[chosen], scores[chosen], s=10, color=look["color"], marker=look["marker"], label=name)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    fraction = percent(float(scores[pruned].sum() / scores.sum()))
    title = f"The lowest {n_pruned} of {len(scores)} channels hold {fraction} of the scores"
    label(axes, title, "channel", "norm after RMSNorm,\nsummed over all norms")
    return fig


# Figures of stored results.


def scores(measured: Measured | None = None) -> Figure:
    """Plot, for each pruned part, the perplexity with each score and with random selection, relative to dense."""
    measured = measured or results.results()
    fig, (axes,) = figure(width=8.4, height=4.2)
    every = results.cuts(measured)
    for place, cut in enumerate(every[::-1]):
        trials = results.random_trials(measured, cut)
        n = len(trials[0]["losses"])
        ratios = [results.times_dense(measured, row, n) for row in trials]
        axes.plot(ratios, [place] * len(trials), "|", color=COLOURS[4], markersize=11, label="random selection")
        for index, (score, name) in enumerate(results.SCORES.items()):
            if row := results.cut_row(measured, cut, *score):
                look = line_style(index) | {"linestyle": "none", "markersize": 7}
                axes.plot(results.times_dense(measured, row, n), place + 0.22, label=name, **look)
    axes.set_yticks(range(len(every)), [results.name_of(cut).replace(", ", ",\n") for cut in every[::-1]])
    axes.set_ylim(-0.5, len(every) - 0.3)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    fig.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    effects = results.gain_over_random(measured).values()
    n_trials = min(len(results.random_trials(measured, cut)) for cut in every)
    title = (
        f"Activation norms are clearly better than random selection in {sum(effect.holds for effect in effects)} of "
        f"{len(effects)} cases;\nat least {n_trials} random trials of each"
    )
    label(axes, title, f"times the dense perplexity, {n} windows (log scale)")
    return fig


FAR = 4  # times the dense perplexity after training: models above that are named, not drawn


def width_or_depth(measured: Measured | None = None) -> Figure:
    """Plot the perplexity of models with equal parameters, right after pruning and after some steps of distillation."""
    measured = measured or results.results()
    fig, (axes,) = figure(width=7.2, height=3.8)
    models, dense = results.equal_models(measured), results.dense(measured)["perplexity"]
    steps = max(models["neurons"])
    near = {name: by_step for name, by_step in models.items() if by_step[steps]["perplexity"] < FAR * dense}
    for index, (name, by_step) in enumerate(near.items()):
        values = [row["perplexity"] for row in by_step.values()]
        axes.plot(range(len(values)), values, label=f"{name}, {values[0]:.1f} to {values[-1]:.1f}", **line_style(index))
    axes.axhline(dense, color=COLOURS[4], linestyle=":", label=f"dense, {dense:.1f}")
    axes.set_xticks((0, 1), ("right after pruning", f"after {steps} steps"))
    axes.set_xlim(-0.1, 1.1)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    after = results.width_over_depth(measured, after=True)
    better = listed([name for name, effect in after.items() if effect.fails] or ["none"])
    outside = "; ".join(
        f"{name}: {by_step[0]['perplexity']:,.0f} to {by_step[steps]['perplexity']:,.0f}"
        for name, by_step in models.items()
        if name not in near
    )
    label(axes, f"After {steps} steps, clearly better than fewer neurons: {better}", "", "perplexity (log scale)")
    if outside:
        axes.set_xlabel(f"not shown: {outside}")
    return fig


RUNS = {"next token": "pruned, from the text alone", "from scratch": "random weights, from the text alone"}


def equal_compute(measured: Measured | None = None, alone: Measured | None = None) -> Figure:
    """Plot perplexity over compute for all runs, and by how much the text alone is worse than the teacher."""
    measured = measured or results.results()
    alone = alone or results.without_teacher()
    fig, (left, right) = figure(n_columns=2, width=5.2, height=3.8)
    runs = {"pruned, with the teacher": results.curve(measured)}
    runs |= {name: results.curve(alone, run) for run, name in RUNS.items()}
    for index, (name, run) in enumerate(runs.items()):
        points = [row for row in run if row["step"]]
        left.plot(_petaflops(points), [row["perplexity"] for row in points], label=name, **line_style(index))
    left.axhline(results.dense(measured)["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(left, "y")
    left.legend(frameon=False, fontsize=9, loc="center right")
    teacher, scratch = results.equal_pairs(measured, alone, "from scratch")[-1]
    title = f"After {scratch['flops'] / 1e15:.3f} petaFLOP: pruned, with the teacher {teacher['perplexity']:.1f},\n"
    label(left, f"{title}from random weights {scratch['perplexity']:,.0f}", "petaFLOP", "perplexity (log scale)")
    _text_alone(right, results.equal_pairs(measured, alone, "next token"))
    return fig


def _text_alone(axes: Axes, pairs: results.Pairs) -> None:
    effects = results.gain_of_teacher(pairs)
    errors = [ERRORS * effect.error for effect in effects]
    values = [effect.value for effect in effects]
    axes.errorbar(_petaflops([other for _, other in pairs]), values, errors, capsize=3, **line_style(0))
    axes.axhline(0, color=COLOURS[4], linestyle=":")
    better, worse = sum(effect.holds for effect in effects), sum(effect.fails for effect in effects)
    title = f"The teacher is clearly better at {better} of {len(effects)} points\nand clearly worse at {worse}"
    label(axes, title, "petaFLOP", f"loss of text alone minus teacher\n(nats per token; {ERROR_BARS})")


def _petaflops(run: list[Row]) -> list[float]:
    return [row["flops"] / 1e15 for row in run]


COUNTED = {"bytes": "bytes", "flops": "FLOP"}


def speeds(bench: dict[str, Any] | None = None) -> Figure:
    """Plot the speedup of each pruned model, with the speedup that its bytes (decoding) or FLOP (prompt) predict."""
    bench = bench or load_bench("cpu_structured")
    sides = bench["tables"]["sides"]
    contests = list(dict.fromkeys(row["contest"] for row in sides))
    fig, panels = figure(n_columns=len(contests), width=3.7, height=3.4)
    near = []
    for axes, contest in zip(panels, contests, strict=True):
        dense, *pruned = [row for row in sides if row["contest"] == contest]
        near += _speedups(axes, dense, pruned, "flops" if contest.startswith("a prompt") else "bytes")
        axes.set_title(contest.split(" at ")[0].replace("8 steps of 1", "decode, 1 sequence"), loc="left", fontsize=11)
    panels[1].set_title("decode, 8 sequences", loc="left", fontsize=11)
    panels[0].set_ylabel("speedup over the dense model")
    fig.suptitle(
        f"Within 10 % of what bytes or FLOP predict: {sum(near)} of {len(near)}", x=0.01, ha="left", fontsize=12
    )
    return fig


def _speedups(axes: Axes, dense: Row, pruned: list[Row], counted: str) -> list[bool]:
    """Draw one panel; return for each pruned model whether its prediction is right within 10 %."""
    predicted = [dense[counted] / row[counted] for row in pruned]
    measured = [row["times_anchor"] for row in pruned]
    below = [row["times_anchor"] - row["times_anchor_low"] for row in pruned]
    above = [row["times_anchor_high"] - row["times_anchor"] for row in pruned]
    look = line_style(0) | {"linestyle": "none"}
    axes.errorbar(range(len(pruned)), measured, yerr=[below, above], capsize=3, label="measured", **look)
    name = f"predicted by {COUNTED[counted]}"
    axes.plot(range(len(pruned)), predicted, "_", markersize=22, color=COLOURS[1], label=name)
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    axes.set_xticks(range(len(pruned)), [row["side"].replace(" ", "\n") for row in pruned])
    axes.set_xlim(-0.5, len(pruned) - 0.5)
    axes.set_ylim(0.9, 1.8)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return [abs(times / goal - 1) <= 0.1 for times, goal in zip(measured, predicted, strict=True)]


def shapes(ideas: Mapping[str, Attempt] | None = None) -> Figure:
    """Plot by how much the log-perplexity of each shape is below that of the first, with two standard errors."""
    ideas = ideas or stored(load_measured("minitron", "shapes")["tables"]["ideas"])
    return beside_the_first({name: attempt.losses for name, attempt in ideas.items()})
