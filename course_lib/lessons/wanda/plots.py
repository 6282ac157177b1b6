"""The figures of lesson 04, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results, or the example layer of the lesson.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.dots import error_bars, reach
from course_lib.lessons.common.effects import n_windows
from course_lib.lessons.common.ideas import beside_the_first
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.wanda.experiments.layer_sparsity import Attempt, stored
from course_lib.lessons.wanda.experiments.masks import damped, removal_costs
from course_lib.measure import paired
from course_lib.models import blocks, linears, load_model, trunk, weight_of
from course_lib.sparsity.patterns import NofM, Unstructured

NAMES = {"magnitude": "magnitude", "wanda": "Wanda", "sparsegpt": "SparseGPT", "sparsegpt_score": "SparseGPT's score"}
METHODS = ("magnitude", "wanda")  # those that this lesson measures
INPUTS = {"self_attn.q_proj": "q, k, v", "self_attn.o_proj": "o", "mlp.gate_proj": "gate, up", "mlp.down_proj": "down"}
BLOCK, LAYER = 15, "self_attn.q_proj"  # the example layer
Z = 1.96  # standard errors to either side: 95 % of a normal distribution
Interval = Callable[[int, int], tuple[float, float, float]]
Ratios = Mapping[str, list[float]]  # by kind of input, one number per block


@lru_cache(maxsize=1)
def example_layer() -> tuple[Float[Tensor, "O I"], Float[Tensor, "N I"]]:
    """The weight of the example layer and its inputs on the calibration set, as in the notebook."""
    model, tokenizer = load_model()
    calibration = windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
    linear, inputs = linears(blocks(model)[BLOCK])[LAYER], []
    hook = linear.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].flatten(0, 1)))
    with torch.inference_mode():
        trunk(model)(calibration, use_cache=False)
    hook.remove()
    return weight_of(linear).detach(), inputs[0]


def feature_norms(norms: Float[Tensor, "I"] | None = None, layer: str = f"Block {BLOCK}, {LAYER}") -> Figure:
    """Plot the norm of every input feature of one layer on a log scale."""
    if norms is None:
        norms = torch.tensor(rows(load_measured("wanda", "activations"), "norms")[0]["norms"])
    fig, (axes,) = figure(width=7.2)
    fractions = (norms.square() / norms.square().sum()).sort(descending=True).values
    n_half = int((fractions.cumsum(0) < 0.5).sum()) + 1
    axes.scatter(range(len(norms)), norms, s=9, color=COLOURS[0])
    axes.axhline(norms.median(), color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_xlim(-0.02 * len(norms), len(norms))
    axes.annotate("median", (len(norms) * 1.01, norms.median()), fontsize=9, va="center", annotation_clip=False)
    log_scale(axes, "y")
    title = f"{layer}: half of the squared norm is in {n_half} of {len(norms)} input features"
    label(axes, title, "input feature j", "feature norm ‖Xⱼ‖₂")
    return fig


def norm_ratios(norms: Mapping[str, Tensor] | None = None, without_first: Mapping[str, Tensor] | None = None) -> Figure:
    """Plot the largest over the median feature norm of every block, over all tokens and without each window's first.

    Args:
        norms: norms of the input features (I,) by layer, such as "layers.3.mlp.down_proj", in the order of the blocks.
        without_first: the same without the first token of each window.
    """
    columns = (("largest", "median"), ("largest_without_first", "median_without_first"))
    given = zip((norms, without_first), columns, strict=True)
    both = [ratios_of(each) if each else stored_ratios(*names) for each, names in given]
    fig, panels = figure(n_columns=2, width=5.4, height=3.7)
    for axes, ratios, tokens in zip(panels, both, ("All tokens", "Without the first token"), strict=True):
        for index, (kind, values) in enumerate(ratios.items()):
            axes.plot(values, markersize=4, label=f"input of {INPUTS[kind]}", **line_style(index))
        log_scale(axes, "y")
        axes.set_ylim(1, 2 * max(max(values) for values in both[0].values()))
        largest, block, kind = max((max(values), values.index(max(values)), kind) for kind, values in ratios.items())
        title = f"{tokens}: up to {largest:,.0f} (block {block}, {INPUTS[kind]})"
        label(axes, title, "block", "largest / median feature norm")
    panels[1].legend(frameon=False, fontsize=9)
    return fig


def ratios_of(norms: Mapping[str, Tensor]) -> Ratios:
    """The largest over the median norm by kind of input, from norms by layer."""
    return {
        kind: [(norm.max() / norm.median()).item() for name, norm in norms.items() if name.endswith(kind)]
        for kind in INPUTS
    }


def stored_ratios(largest: str, median: str) -> Ratios:
    """The ratio of two columns of the stored activations, by kind of input."""
    table = rows(load_measured("wanda", "activations"), "activations")
    return {kind: [row[largest] / row[median] for row in table if row["layer"].endswith(kind)] for kind in INPUTS}


def removed_weights(weight: Tensor | None = None, inputs: Tensor | None = None, n_tokens: int = 60) -> Figure:
    """Plot by how much one output moves on each token when a weight is set to zero: a small one, and a large one.

    The small weight belongs to the largest input feature, the large one to a feature whose norm is below the median.
    """
    if weight is None or inputs is None:
        weight, inputs = example_layer()
    norms = inputs.norm(dim=0)
    outlier = int(norms.argmax())
    row = int(weight[:, outlier].abs().argsort()[len(weight) // 2])
    usual = int((weight[row].abs() * (norms < norms.median())).argmax())
    fig, (axes,) = figure(width=7.2, height=3.2)
    moved = {}
    for index, (feature, kind) in enumerate(((usual, "usual"), (outlier, "outlier"))):
        change = -inputs[:, feature] * weight[row, feature]
        size = f"{weight[row, feature].abs():.2f}"
        moved[size] = change.abs().mean().item()
        name = f"|W| = {size}, {kind} input (feature {feature})"
        axes.plot(change[:n_tokens], label=name, **line_style(index) | {"markersize": 3, "linewidth": 1.2})
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    (large, by_large), (small, by_small) = moved.items()
    title = f"Removing the weight of {small} moves the output {by_small / by_large:.1f} times as far as that of {large}"
    label(axes, title, "token", f"change of output {row}")
    return fig


def columns_kept(weight: Tensor | None = None, norms: Tensor | None = None, sparsity: float = 0.5) -> Figure:
    """Plot the fraction of each input column that magnitude and Wanda keep, against the norm of the input feature."""
    if weight is None or norms is None:
        weight, inputs = example_layer()
        norms = inputs.norm(dim=0)
    fig, (axes,) = figure(width=7.2)
    pattern = Unstructured(sparsity)
    fractions = {
        "magnitude": pattern.keep(weight.abs()).float().mean(dim=0),
        "Wanda": pattern.keep(weight.abs() * norms).float().mean(dim=0),
    }
    for index, (name, fraction) in enumerate(fractions.items()):
        look = line_style(index)
        axes.scatter(norms, 100 * fraction, s=14, color=look["color"], marker=look["marker"], label=name, alpha=0.7)
    log_scale(axes, "x")
    axes.legend(frameon=False)
    largest = norms >= norms.quantile(0.99)
    first, second = (f"{name} {100 * each[largest].mean():.0f} %" for name, each in fractions.items())
    title = f"Weights kept on the largest 1 % of inputs: {first}, {second}"
    label(axes, title, "norm of the input feature, ‖Xⱼ‖₂", "weights kept in its column (%)")
    return fig


def comparison_groups() -> Figure:
    """Draw the five comparison groups of the paper on a small layer; one group of each kind is dark."""
    names = {
        "whole layer": (6, 8),
        "each output\n(output, 1)": (1, 8),
        "several outputs\n(output, 128)": (2, 8),
        "each input\n(input, 1)": (6, 1),
        "several inputs\n(input, 128)": (6, 2),
    }
    fig, panels = figure(n_columns=5, width=2.5, height=2.7)
    for axes, (name, (height, width)) in zip(panels, names.items(), strict=True):
        for top in range(0, 6, height):
            for left in range(0, 8, width):
                dark = top == 0 and left == 0
                look = {"facecolor": COLOURS[0] if dark else "#e3e7ec", "edgecolor": "white", "linewidth": 2}
                axes.add_patch(Rectangle((left, top), width, height, **look))
        axes.set_xlim(-0.1, 8.1)
        axes.set_ylim(6.1, -0.1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(name, loc="left", fontsize=13)
        axes.set_xlabel("inputs →", loc="left", fontsize=11)
    panels[0].set_ylabel("← outputs", loc="top", fontsize=11)
    fig.suptitle("A weight is ranked within its group; one group of each kind is dark", x=0.01, ha="left", fontsize=13)
    return fig


def n_of_m_example() -> Figure:
    """Draw one row of eight scores: the highest half of the row, and the highest two of every four."""
    score = torch.tensor([[7.0, 9.0, 8.0, 6.0, 1.0, 2.0, 5.0, 3.0]])
    fig, panels = figure(n_rows=2, width=6.2, height=1.1)
    patterns = {"Half of the row": Unstructured(0.5), "Two of every four": NofM(2, 4)}
    for axes, (name, pattern) in zip(panels, patterns.items(), strict=True):
        keep = pattern.keep(score)
        draw_cells(axes, score, keep, "{:.0f}")
        axes.axvline(4, color=COLOURS[1], linewidth=3 if isinstance(pattern, NofM) else 0)
        axes.set_xticks([])
        axes.set_yticks([])
        kept, total = score[keep].sum(), score.sum()
        axes.set_title(f"{name}: the kept scores (dark) add up to {kept:.0f} of {total:.0f}", loc="left", fontsize=11)
    return fig


def draw_cells(axes: Axes, values: Tensor, keep: Tensor, form: str) -> None:
    """Draw a matrix as boxes with its numbers, dark where a weight is kept."""
    n_rows, n_columns = values.shape
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            is_kept = bool(keep[i, j])
            face, ink = (COLOURS[0], "white") if is_kept else ("#eef1f4", "#6b7685")
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor="white", linewidth=2))
            axes.text(j + 0.5, i + 0.5, form.format(value), ha="center", va="center", color=ink, fontsize=14)
    axes.set_xlim(0, n_columns)
    axes.set_ylim(n_rows, 0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def block_by_block() -> Figure:
    """Draw the pruning loop: each transformer block is pruned on the outputs of the pruned blocks before it."""
    fig, (axes,) = figure(width=11.5, height=3.3)
    states = {1: ("pruned", COLOURS[4], "X₁"), 2: ("being pruned", "#f6e7c4", "X̂₂"), 3: ("still dense", "white", "X̂₃")}
    for number, left in enumerate((1.6, 5.2, 8.8), 1):
        state, face, flow = states[number]
        box = FancyBboxPatch((left, 0.8), 2.3, 1.5, boxstyle="round,pad=0.08", facecolor=face, edgecolor=COLOURS[0])
        axes.add_patch(box)
        axes.text(left + 1.15, 1.75, f"block {number}{' …' * (number == 3)}", ha="center", fontsize=14, weight="bold")
        axes.text(left + 1.15, 1.2, state, ha="center", fontsize=12)
        axes.annotate("", (left - 0.15, 1.55), (left - 1.15, 1.55), arrowprops={"arrowstyle": "->", "linewidth": 2})
        axes.text(left - 0.65, 1.72, flow, ha="center", fontsize=14)
    steps = (
        "1  run the dense block: collect ‖X̂ⱼ‖",
        "2  score, mask, set weights to zero",
        "3  run it again: compute X̂₃",
    )
    for row, text in enumerate(steps):
        axes.text(4.5, 0.35 - 0.42 * row, text, fontsize=12.5)
    axes.text(0.0, 2.75, "A hat marks inputs that were computed by pruned blocks.", fontsize=12)
    axes.set_xlim(0, 11.6)
    axes.set_ylim(-0.8, 3.1)
    axes.axis("off")
    fig.suptitle("Each block is pruned on the outputs of the pruned blocks before it", x=0.01, ha="left", fontsize=13)
    return fig


def sweep(results: Mapping[str, Any] | None = None) -> Figure:
    """Plot perplexity over sparsity for magnitude pruning and Wanda."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(results, "sweep", method="dense")
    perplexity = {}
    for index, method in enumerate(METHODS):
        points = sorted(rows(results, "sweep", method=method), key=lambda row: row["sparsity"])
        perplexity[method] = {row["sparsity"]: row["perplexity"] for row in points}
        bars = list(zip(*(reach(row["perplexity"], row["standard_error"]) for row in points), strict=True))
        at = [100 * row["sparsity"] for row in points]
        axes.errorbar(at, list(perplexity[method].values()), bars, capsize=3, label=NAMES[method], **line_style(index))
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(axes, "y")
    axes.legend(frameon=False)
    ratios = [perplexity["magnitude"][s] / perplexity["wanda"][s] for s in perplexity["wanda"] if s >= 0.5]
    title = f"From 50 % sparsity on, Wanda's perplexity is {min(ratios):.0f} to {max(ratios):.0f} times lower"
    y = f"perplexity (log scale;\n{error_bars(n_windows(dense))})"
    label(axes, title, "sparsity of the transformer blocks (%)", y)
    return fig


def score_ranks(
    costs: Tensor | None = None, score: Tensor | None = None, layer: str = f"Block {BLOCK}, {LAYER}"
) -> Figure:
    """Plot each weight's rank within its row by SparseGPT's score against its rank by Wanda's, as a histogram."""
    if costs is None or score is None:
        weight, inputs = example_layer()
        costs, score = removal_costs(weight, damped(inputs.T @ inputs))[1], weight.abs() * inputs.norm(dim=0)
    fig, (axes,) = figure(width=5.6, height=4.4)
    pattern = Unstructured(0.5)
    agreement = 100 * (pattern.keep(costs) == pattern.keep(score)).float().mean().item()
    ranks = [100 * each.argsort(dim=1).argsort(dim=1).flatten() / each.shape[1] for each in (score, costs)]
    *_, cells = axes.hist2d(*(rank.numpy() for rank in ranks), bins=60, cmap="Greys", norm=LogNorm(), rasterized=True)
    fig.colorbar(cells, ax=axes, label="weights per cell")
    axes.axhline(50, color=COLOURS[1], linewidth=1)
    axes.axvline(50, color=COLOURS[1], linewidth=1, linestyle="--")
    axes.grid(visible=False)
    title = f"{layer}: at 50 % sparsity\nthe masks of both scores agree on {agreement:.0f} % of the weights"
    label(axes, title, "rank in its row by Wanda's score (%)", "rank in its row by SparseGPT's score (%)")
    return fig


def normal(n_right: int, n: int) -> tuple[float, float, float]:
    """Return (accuracy, lower, upper), Z standard errors to either side."""
    fraction = n_right / n
    half = Z * math.sqrt(fraction * (1 - fraction) / n)
    return fraction, fraction - half, fraction + half


def wilson(n_right: int, n: int) -> tuple[float, float, float]:
    """Return (accuracy, lower, upper) by Wilson's interval, which never reaches beyond 0 and 1."""
    return n_right / n, *paired.wilson(n_right, n, Z)


def coverage_of(interval: Interval, accuracy: float, n: int) -> float:
    """Return the exact probability that the interval of n answers contains the true accuracy."""
    inside = [k for k in range(n + 1) if (ends := interval(k, n)) and ends[1] <= accuracy <= ends[2]]
    return sum((math.comb(n, k) * accuracy**k * (1 - accuracy) ** (n - k) for k in inside), 0.0)


def coverage(interval: Interval = normal, n: int = 100) -> Figure:
    """Plot how often the normal interval and Wilson's contain the true accuracy, over the true accuracy."""
    fig, (axes,) = figure(width=7.2)
    accuracies = [t / 200 for t in range(2, 199)]
    intervals = {"normal approximation": interval, "Wilson's interval": wilson}
    lowest = []
    for index, (name, each) in enumerate(intervals.items()):
        ends = {k: each(k, n) for k in range(n + 1)}  # every count once: the student's function may be slow
        curve = [100 * coverage_of(lambda k, _, ends=ends: ends[k], accuracy, n) for accuracy in accuracies]
        look = line_style(index) | {"markersize": 4, "markevery": 10}
        axes.plot([100 * accuracy for accuracy in accuracies], curve, label=name, **look)
        lowest.append(min(curve))
    axes.axhline(95, color=COLOURS[4], linestyle=":")
    axes.legend(frameon=False, loc="lower center")
    title = f"“95 %” intervals of {n} answers: at worst {lowest[0]:.0f} % contain the truth, Wilson's {lowest[1]:.0f} %"
    label(axes, title, "true accuracy (%)", "intervals that contain it (%)")
    return fig


def zero_shot(results: Mapping[str, Any] | None = None) -> Figure:
    """Plot accuracies with Wilson's 95 % intervals, the tasks with the clearest signal first."""
    results = results or load_measured("wanda")
    fig, (axes,) = figure(width=9.5, height=4.0)
    dense = {row["task"]: row for row in rows(results, "zero_shot", method="dense")}
    tasks = by_signal(results)
    models = [("dense", "dense", "dense"), ("wanda", "50%", "Wanda 50 %"), ("magnitude", "50%", "magnitude 50 %")]
    for index, (method, pattern, name) in enumerate(models):
        by_task = {row["task"]: row for row in rows(results, "zero_shot", method=method, pattern=pattern)}
        cells = [wilson(round(by_task[task]["accuracy"] * by_task[task]["n"]), by_task[task]["n"]) for task in tasks]
        values, lower, upper = zip(*([100 * each for each in cell] for cell in cells), strict=True)
        bars = [
            [v - low for v, low in zip(values, lower, strict=True)],
            [u - v for v, u in zip(values, upper, strict=True)],
        ]
        at = [i + 0.22 * (index - 1) for i in range(len(tasks))]
        axes.errorbar(at, values, yerr=bars, capsize=2, label=name, **line_style(index) | {"linestyle": ""})
    for i, task in enumerate(tasks):
        axes.hlines(100 * dense[task]["chance"], i - 0.4, i + 0.4, color=COLOURS[4], linestyle=":")
    n_signal = sum(has_signal(dense[task]) for task in tasks)
    axes.axvspan(n_signal - 0.5, len(tasks) - 0.5, color="#8d99ae", alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks], fontsize=9)
    axes.set_ylim(-2, 100)  # so that a marker at zero is not cut off
    axes.legend(frameon=False, ncols=3)
    title = (
        f"On {n_signal} of {len(tasks)} tasks the dense model is clearly above chance (dotted); the others are shaded"
    )
    label(axes, title, "", "accuracy (%), Wilson's 95 % interval")
    return fig


def by_signal(results: Mapping[str, Any]) -> list[str]:
    """Return the tasks, those on which the dense model is most clearly above chance first."""
    dense = rows(results, "zero_shot", method="dense")
    signal = {row["task"]: (row["accuracy"] - row["chance"]) / max(row["standard_error"], 1e-9) for row in dense}
    return sorted(signal, key=signal.__getitem__, reverse=True)


def layer_sparsity(ideas: Mapping[str, Attempt] | None = None) -> Figure:
    """Plot by how much each idea for the open task lowers the log-perplexity of equal sparsity."""
    ideas = ideas or stored(rows(load_measured("wanda", "layer_sparsity"), "ideas"))
    return beside_the_first({name: attempt.losses for name, attempt in ideas.items()})
