"""The figures of lesson 04 that only the deck shows: drawings, published numbers, and further stored results."""

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import error_bars, reach, side_by_side
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.effects import Row, log_gap, n_windows
from course_lib.lessons.common.results import listed, load_measured, load_published, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.wanda.claims import PAPER_CLAIMS, kept_margins
from course_lib.lessons.wanda.plots import METHODS, NAMES, draw_cells, example_layer
from course_lib.sparsity.patterns import Unstructured

Results = Mapping[str, Any]

# The comparison groups by the paper's names.
GROUPS = {
    "layer": "the whole\nlayer",
    "(input, 1)": "each input\n(input, 1)",
    "(input, 128)": "128 inputs\n(input, 128)",
    "(output, 1)": "each output\n(output, 1)",
    "(output, 128)": "128 outputs\n(output, 128)",
}
PER = {"layer": "whole layer", "row": "each output", "column": "each input"}

EXAMPLE = torch.tensor([[0.9, 0.2, 0.5, 0.4], [0.3, 0.2, 0.8, 0.6], [0.2, 0.7, 0.1, 0.5]])
EXAMPLE_NORMS = torch.tensor([1.0, 8.0, 2.0, 1.0])


def corner() -> Figure:
    """Plot a corner of a real layer: the magnitudes of its weights, and the scores, with stripes at large inputs."""
    weight, inputs = example_layer()
    norms = inputs.norm(dim=0)
    first = max(0, int(norms.argmax()) - 30)
    cut = slice(0, 22), slice(first, first + 44)
    fig, panels = figure(n_rows=2, width=6.4, height=2.7)
    named = {"|W|": weight.abs(), "|W| times the norm of the input": weight.abs() * norms}
    for axes, (name, values) in zip(panels, named.items(), strict=True):
        axes.imshow(values[cut], cmap="Greys", vmax=values[cut].quantile(0.98), interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        label(axes, name, "input features" if axes is panels[-1] else "", "outputs")
    return fig


def worked_example() -> Figure:
    """Draw three outputs with four inputs, and the half of each row that magnitude and Wanda keep."""
    fig, panels = figure(n_columns=2, width=5.4, height=3.5)
    score = EXAMPLE * EXAMPLE_NORMS
    for axes, name, values in zip(panels, ("|W|", "|W| · ‖X‖"), (EXAMPLE, score), strict=True):
        draw_cells(axes, values, Unstructured(0.5).keep(values), "{:.1f}")
        heads = [f"x{j + 1}" if values is EXAMPLE else f"‖X{j + 1}‖ = {n:.0f}" for j, n in enumerate(EXAMPLE_NORMS)]
        axes.set_xticks([j + 0.5 for j in range(4)], heads, fontsize=12)
        axes.set_yticks([i + 0.5 for i in range(3)], [f"output {i + 1}" for i in range(3)], fontsize=12)
        axes.xaxis.tick_top()
        axes.set_title(name, loc="left", fontsize=14, pad=10)
    same = int((Unstructured(0.5).keep(EXAMPLE) == Unstructured(0.5).keep(score)).sum())
    fig.suptitle(f"Half of each row is kept (dark); the masks agree on {same} of 12 weights", fontsize=13)
    return fig


def accuracy_published() -> Figure:
    """Plot the paper's mean accuracies of LLaMA at 50 % sparsity by model size."""
    fig, (axes,) = figure(width=7.6, height=4.0)
    table = rows(load_published("wanda"), "zero_shot_mean")
    models = [f"LLaMA-{size}" for size in ("7B", "13B", "30B", "65B")]
    methods = {"dense": "dense", "magnitude": "magnitude, 50 %", "sparsegpt": "SparseGPT, 50 %", "wanda": "Wanda, 50 %"}
    curves = {}
    for index, (method, name) in enumerate(methods.items()):
        of_method = [row for row in table if row["method"] == method and row["pattern"] in ("dense", "50%")]
        accuracy = {row["model"]: 100 * row["accuracy"] for row in of_method}
        curves[method] = [accuracy[model] for model in models]
        axes.plot(range(len(models)), curves[method], label=name, **line_style(index))
    axes.set_xticks(range(len(models)), models)
    axes.legend(frameon=False)
    lost = [dense - pruned for dense, pruned in zip(curves["dense"], curves["magnitude"], strict=True)]
    title = f"Published: at 50 % magnitude loses {min(lost):.0f} to {max(lost):.0f} points"
    label(axes, title, "", "mean accuracy over seven tasks (%)")
    return fig


def seconds_published() -> Figure:
    """Plot the paper's seconds for computing the score by model size."""
    fig, (axes,) = figure(width=5.8, height=5.2)
    table = rows(load_published("wanda"), "seconds")
    by_method = {}
    for index, method in enumerate(("sparsegpt", "wanda")):
        seconds = {r["model"].removeprefix("LLaMA-"): r["seconds"] for r in table if r["method"] == method}
        axes.plot(range(len(seconds)), list(seconds.values()), label=NAMES[method], **line_style(index))
        by_method[method] = list(seconds.values())
    axes.set_xticks(range(len(seconds)), list(seconds))
    log_scale(axes, "y")
    axes.legend(frameon=False)
    times = [slow / fast for slow, fast in zip(*by_method.values(), strict=True)]
    title = f"Published: {min(times):.0f} to {max(times):.0f} times less time for the score"
    label(axes, title, "LLaMA", "seconds, forward passes not counted")
    return fig


def by_pattern(results: Results | None = None, corpus: str = "wikipedia") -> Figure:
    """Plot perplexity at 50 % sparsity by pattern and method."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=6.2, height=5.4)
    (dense,) = rows(results, "perplexity", method="dense", corpus=corpus)
    patterns = ("50%", "4:8", "2:4")
    by_method = {
        method: [rows(results, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in patterns]
        for method in METHODS
    }
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label=f"dense, {dense['perplexity']:.1f}")
    series = {NAMES[method]: _cells(table) for method, table in by_method.items()}
    side_by_side(axes, ("unstructured", "4:8", "2:4"), series)
    axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.02))
    steps = {
        NAMES[method]: [log_gap(looser, tighter).holds for looser, tighter in pairwise(table)]
        for method, table in by_method.items()
    }
    clear = ", ".join(f"{sum(each)} of {len(each)} for {name}" for name, each in steps.items())
    title = f"At 50 % sparsity a tighter pattern clearly costs more in\n{clear}"
    label(axes, title, "", f"perplexity (log scale;\n{error_bars(n_windows(dense))})")
    return fig


def _cells(table: list[Row]) -> list[tuple[float, float]]:
    return [(row["perplexity"], row["standard_error"]) for row in table]


def calibration_curve(results: Results | None = None) -> Figure:
    """Plot the perplexity of Wanda at 50 % over the number of calibration windows; each dot is another sample."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=6.8)
    runs = sorted(rows(results, "calibration"), key=lambda row: row["n_windows"])
    sizes = sorted({row["n_windows"] for row in runs})
    by_size = {n: [row["perplexity"] for row in runs if row["n_windows"] == n] for n in sizes}
    means = [sum(values) / len(values) for values in by_size.values()]
    axes.scatter([r["n_windows"] for r in runs], [r["perplexity"] for r in runs], color=COLOURS[1], marker="s", s=24)
    axes.plot(sizes, means, color=COLOURS[0])
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    higher, (most, *_) = 100 * (means[0] / means[-1] - 1), (r for r in runs if r["n_windows"] == sizes[-1])
    is_clear = all(log_gap(most, run).holds for run in runs if run["n_windows"] == sizes[0])
    within = "" if is_clear else ", within the errors"
    title = f"With one calibration window perplexity is {higher:.0f} % higher than with {sizes[-1]}{within}"
    label(axes, title, f"calibration windows of {results['sizes']['length']} tokens", "perplexity of Wanda at 50 %")
    return fig


def group_ablation(results: Results | None = None) -> Figure:
    """Plot perplexity at 50 % by comparison group and method."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=6.8)
    groups = list(dict.fromkeys(row["group"] for row in rows(results, "groups")))
    by_method = {m: {g: rows(results, "groups", method=m, group=g)[0] for g in groups} for m in METHODS}
    series = {NAMES[method]: _cells(list(by_group.values())) for method, by_group in by_method.items()}
    side_by_side(axes, [GROUPS.get(group, group) for group in groups], series)
    axes.legend(frameon=False, ncols=2, loc="upper right")
    best = {NAMES[m]: [_short(group) for group in best_groups(by_group)] for m, by_group in by_method.items()}
    names = ", ".join(f"{listed(each)} for {name}" for name, each in best.items())
    is_single = all(len(each) == 1 for each in best.values())
    title = f"{'Clearly the best group' if is_single else 'The best group, and those not clearly worse'}:\n{names}"
    bars = error_bars(n_windows(next(iter(by_method["wanda"].values()))))
    label(axes, title, "comparison group, and the paper's name for it", f"perplexity at 50 % (log scale;\n{bars})")
    return fig


def best_groups(by_group: dict[str, Row]) -> list[str]:
    """Return the group with the lowest perplexity, then those whose difference from it is not clear."""
    best, *others = sorted(by_group, key=lambda group: by_group[group]["perplexity"])
    return [best, *(group for group in others if not log_gap(by_group[best], by_group[group]).holds)]


def _short(group: str) -> str:
    return GROUPS.get(group, group).partition("\n(")[0].replace("\n", " ")


def published_ratios(results: Results | None = None) -> Figure:
    """Plot the ratio of pruned to dense perplexity of the paper's LLaMA-2 models and of the course's model."""
    results = results or load_measured("wanda")
    panels = ("50%", "2:4")
    fig, both = figure(n_columns=len(panels), width=5.2, height=3.9)
    bars = error_bars(n_windows(rows(results, "perplexity", method="dense", corpus="wikipedia")[0]))
    for axes, pattern in zip(both, panels, strict=True):
        by_method = {m: times_dense(results, m, pattern) for m in ("magnitude", "sparsegpt", "wanda")}
        models = list(dict.fromkeys(model for by_model in by_method.values() for model in by_model))
        for index, (method, by_model) in enumerate(by_method.items()):
            at = [models.index(model) + 0.16 * (index - 1) for model in by_model]
            values = [times for times, _ in by_model.values()]
            below, above = zip(*(reach(times, times * error) for times, error in by_model.values()), strict=True)
            look = line_style(index) | {"linestyle": "none"}
            axes.errorbar(at, values, [below, above], capsize=3, label=NAMES[method], **look)
        axes.set_xticks(range(len(models)), [model.replace(" ", "\n") for model in models], fontsize=9)
        axes.set_xlim(-0.5, len(models) - 0.5)
        log_scale(axes, "y")
        axes.axhline(1, color=COLOURS[4], linestyle=":")
        ours, *published = (times for times, _ in by_method["wanda"].values())
        title = (
            f"{'2:4' if pattern == '2:4' else '50 %'}: Wanda's perplexity is {ours:.1f} times the dense one\n"
            f"here, {min(published):.1f} to {max(published):.1f} times published"
        )
        label(axes, title, "", f"times dense (log scale;\n{bars})")
    both[0].legend(frameon=False, fontsize=9)
    return fig


def times_dense(results: Results, method: str, pattern: str) -> dict[str, tuple[float, float]]:
    """By model: perplexity over that of the dense model, and the standard error of its logarithm (0 if published)."""
    times = {}
    if ours := rows(results, "perplexity", method=method, pattern=pattern, corpus="wikipedia"):
        gap = log_gap(rows(results, "perplexity", method="dense", corpus="wikipedia")[0], ours[0])
        times["135M here"] = (math.exp(gap.value), gap.error)
    published = load_published("wanda")
    for row in rows(published, "perplexity", method=method, pattern=pattern):
        (dense,) = rows(published, "perplexity", method="dense", model=row["model"])
        times[row["model"].replace("LLaMA-2-", "LLaMA-2 ")] = (row["perplexity"] / dense["perplexity"], 0.0)
    return times


def layer_errors(masks: Results | None = None) -> Figure:
    """Plot how much pruning half of the weights changes the output of a layer, by score and comparison group."""
    masks = masks or load_measured("wanda", "masks")
    fig, (axes,) = figure(width=8.4, height=3.6)
    table = rows(masks, "masks")
    choices = list(table[0]["relative_error"])
    for place, choice in enumerate(reversed(choices)):
        errors = sorted(100 * row["relative_error"][choice] for row in table)
        low, middle, high = (errors[int(quantile * (len(errors) - 1))] for quantile in (0.1, 0.5, 0.9))
        look = line_style(0 if choice.startswith("magnitude") else 1) | {"linestyle": "none"}
        axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], capsize=3, **look)
        axes.annotate(f"{middle:.1f}", (middle, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(range(len(choices)), [choice_name(choice) for choice in reversed(choices)])
    axes.set_ylim(-0.6, len(choices) - 0.3)
    log_scale(axes, "x")
    agreement, times = agreement_and_error(masks)
    title = (
        f"Within outputs, the masks agree on {agreement:.0f} % of the weights,\n"
        f"and magnitude's error is {times:.1f} times Wanda's (median of {len(table)} layers)"
    )
    x = "squared error of the output, held-out text (%, log scale;\nmedian layer, bars: 10 to 90 % of the layers)"
    label(axes, title, x)
    return fig


def choice_name(choice: str) -> str:
    """Return the score that chose a mask, and its comparison group, in words."""
    score, per = choice.split(", ")
    return f"{NAMES[score]}, {PER[per]}"


def agreement_and_error(masks: Results) -> tuple[float, float]:
    """Return how much of magnitude's mask is Wanda's (%), and its error over Wanda's, both of the median layer."""
    table = rows(masks, "masks")
    agreement = median(row["agree_with_wanda"]["magnitude"] for row in table)
    errors = [row["relative_error"] for row in table]
    return 100 * agreement, median(each["magnitude, row"] / each["wanda, row"] for each in errors)


def margins(results: Results | None = None) -> Figure:
    """Plot the part of the dense margin above chance that each pruned model keeps, by task, over its perplexity."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=7.6, height=3.9)
    by_task = kept_margins(results)
    for index, (task, points) in enumerate(by_task.items()):
        shift = 1.035 ** (index - (len(by_task) - 1) / 2)  # so that bars do not overlap
        perplexities, fractions, errors = zip(*points, strict=True)
        bars = [100 * ERRORS * error for error in errors]
        look = line_style(index) | {"label": task.replace("_", " "), "capsize": 2, "elinewidth": 0.8}
        axes.errorbar([shift * each for each in perplexities], [100 * each for each in fractions], yerr=bars, **look)
    axes.axhline(0, color="black", linewidth=0.8)
    log_scale(axes, "x")
    axes.set_ylim(top=125)
    axes.legend(frameon=False, fontsize=9, ncols=len(by_task), loc="upper center")
    middle = len(next(iter(by_task.values()))) // 2
    numbers = ", ".join(f"{task.replace('_', ' ')} {100 * points[middle][1]:.0f}" for task, points in by_task.items())
    perplexity = next(iter(by_task.values()))[middle][0]
    title = f"Margin above chance that is left at a perplexity of {perplexity:.0f} (% of dense):\n{numbers}"
    y = "margin above chance, % of dense\n(bars: two standard errors)"
    label(axes, title, "perplexity of the pruned model (log scale)", y)
    return fig


def take_home() -> Figure:
    """Draw the paper's claims with the published numbers, ours and the verdicts."""
    return drawn_claims(PAPER_CLAIMS)
