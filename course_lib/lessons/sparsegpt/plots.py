"""The figures of lesson 03, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results, or the example block of the lesson.

Dimension key: O outputs of a layer, I its inputs.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from torch import Tensor, nn

from course_lib.data.corpora import windows
from course_lib.lessons.common.dots import error_bars, reach, side_by_side
from course_lib.lessons.common.effects import log_gap, n_windows
from course_lib.lessons.common.results import load_measured, load_published, rows, spaced
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.sparsegpt.claims import NAMES, PATTERNS, Tables, perplexity_row
from course_lib.lessons.sparsegpt.experiments.sparsegpt import tables as stored_tables
from course_lib.lessons.sparsegpt.experiments.sparsegpt_layers import METHODS, errors_in_block
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.layerwise.gram import Gram
from course_lib.sparsity.patterns import Unstructured

BLOCK, LAYER = 15, "self_attn.q_proj"  # the example layer
DAMPING = 0.01


@lru_cache(maxsize=2)
def example_block(n_windows: int = 16) -> tuple[nn.Module, dict[str, Gram]]:
    """The example block and the Gram matrices of its layers on the calibration set, as in the notebook."""
    model, tokenizer = load_model()
    calibration = windows("wikipedia", n_windows, 256, tokenizer, split="calibration", seed=0)
    return blocks(model)[BLOCK], input_grams(model, calibration, BLOCK)


def example_layer() -> tuple[Float[Tensor, "O I"], Float[Tensor, "I I"]]:
    """The weight of the example layer and the Gram matrix of its inputs."""
    block, grams = example_block()
    return weight_of(linears(block)[LAYER]).detach(), grams[LAYER].matrix


def explained_inputs(gram: Tensor | None = None, n_tokens: int = 4096, corner: int = 96) -> Figure:
    """Plot the cosines between some inputs, and the fraction of every input that the others together explain.

    Unrelated inputs would seem explained too, by chance: with N tokens to a fraction of I / N.
    """
    gram = example_layer()[1] if gram is None else gram
    fig, (left, right) = figure(2, width=4.4, height=3.7)
    size = gram.diagonal().sqrt().clamp(min=1e-30)
    cosine = (gram / (size[:, None] * size))[:corner, :corner]
    shown = left.imshow(cosine.abs(), cmap="Greys", vmin=0, vmax=0.5, interpolation="nearest")
    left.grid(visible=False)
    fig.colorbar(shown, ax=left, shrink=0.8, label="|cosine| of two inputs", extend="max")
    pairs = cosine[~torch.eye(len(cosine), dtype=torch.bool)].abs().median().item()
    label(left, f"Two inputs have little in common:\nmedian |cosine| {pairs:.2f}", "input", "input")
    explained, chance = explained_fraction(gram), len(gram) / n_tokens
    right.hist(100 * explained, bins=40, range=(0, 100), color=COLOURS[0])
    for value, dash, text in ((explained.median().item(), "--", "median"), (chance, ":", "by chance")):
        right.axvline(
            100 * value, color=COLOURS[1], linestyle=dash, linewidth=1.4, label=f"{text}: {100 * value:.0f} %"
        )
    right.legend(frameon=False, fontsize=9, loc="upper right")
    title = f"All others together explain {100 * explained.median():.0f} %\nof an input (median)"
    label(right, title, "fraction of an input that the others explain (%)", "number of inputs")
    return fig


def explained_fraction(gram: Float[Tensor, "I I"]) -> Float[Tensor, "I"]:
    """1 − 1 / (H_jj [H⁻¹]_jj) for each input, with the damped H."""
    inverse = torch.linalg.inv(damped(gram.double()))
    return (1 - 1 / (gram.diagonal() * inverse.diagonal())).clamp(0, 1).float()


def damped(gram: Float[Tensor, "I I"], damping: float = DAMPING) -> Float[Tensor, "I I"]:
    """Add a fraction of the mean diagonal to the diagonal, and 1 where an input is always zero."""
    squares = gram.diag()
    return gram + (damping * squares.mean() + (squares == 0).to(gram.dtype)).diag()


def objective(weight: Tensor | None = None, gram: Tensor | None = None) -> Figure:
    """Plot the squared error of one output over two of its weights, whose inputs are correlated and of equal size.

    The error is δᵀ G δ for the changes δ of the two weights, as a fraction of the squared output.
    """
    if weight is None or gram is None:
        weight, gram = example_layer()
    fig, (axes,) = figure(width=6.8, height=4.0)
    first, second = _related_pair(gram)
    row = weight[weight[:, first].abs().argsort()[len(weight) // 2]]  # the output whose first weight is in the middle
    pair, whole = gram[[first, second]][:, [first, second]], row @ gram @ row
    removed = torch.stack([-row[first], torch.zeros(())])
    updated = torch.stack([-row[first], row[first] * pair[0, 1] / pair[1, 1]])
    costs = [(100 * (d @ pair @ d) / whole).item() for d in (removed, updated)]
    ticks = 1.9 * row[first].abs().item() * torch.linspace(-1, 1, 121)
    x, y = torch.meshgrid(ticks, ticks, indexing="xy")
    fraction = 100 * (pair[0, 0] * x**2 + 2 * pair[0, 1] * x * y + pair[1, 1] * y**2) / whole
    lines = axes.contour(x, y, fraction, levels=[c * costs[0] for c in (0.1, 0.3, 0.6, 1, 2)], colors="#8d99ae")
    axes.clabel(lines, fmt="%.2g %%", fontsize=9)
    axes.axvline(removed[0].item(), color=COLOURS[4], linestyle=":", linewidth=1.4)
    named = {"as trained": torch.zeros(2), "first weight removed": removed, "and the second updated": updated}
    for index, (name, point) in enumerate(named.items()):
        axes.plot(*point.tolist(), label=name, markersize=9, **line_style(index) | {"linestyle": "none"})
    axes.annotate("", updated.tolist(), removed.tolist(), arrowprops={"arrowstyle": "->", "color": "black"})
    fig.legend(frameon=False, fontsize=10, loc="outside right center")
    title = (
        f"Removing one weight changes {costs[0]:.2g} % of an output,\n{costs[1]:.2g} % after an update of a second one"
    )
    label(axes, title, "change of the first weight", "change of the second weight")
    return fig


def _related_pair(gram: Tensor) -> tuple[int, int]:
    """Two inputs with an absolute cosine of about 0.7 and of about the same size, so that the ellipses are visible."""
    size = gram.diagonal().sqrt().clamp(min=1e-30)
    cosine = (gram / (size[:, None] * size)).abs()
    unlike = (cosine - 0.7).abs() + (size[:, None] / size).log().abs()
    return divmod(int(unlike.fill_diagonal_(torch.inf).argmin()), len(gram))


def spectrum(grams: Mapping[int, Tensor] | None = None, damping: float = DAMPING) -> Figure:
    """Plot the eigenvalues of XᵀX over their mean, largest first, by the number of tokens in X; and the damping."""
    if grams is None:
        grams = {gram.n_tokens: gram.matrix for gram in (example_block(n)[1][LAYER] for n in (1, 16))}
    fig, (axes,) = figure(width=7.2, height=3.6)
    empty = {}
    for index, (n_tokens, gram) in enumerate(grams.items()):
        values = torch.linalg.eigvalsh(gram.double()).flip(0) / gram.diagonal().mean()
        empty[n_tokens] = int((values < EMPTY).sum())
        look = line_style(index) | {"marker": "", "linewidth": 2}
        axes.plot(range(1, len(values) + 1), values.clamp(min=EMPTY), label=f"{n_tokens} tokens", **look)
    axes.axhline(damping, color=COLOURS[2], linestyle=":", linewidth=2, label=f"damping, λ = {damping:g}")
    axes.set_yscale("log")
    axes.set_ylim(EMPTY / 2)
    axes.legend(frameon=False, fontsize=9)
    counts = ", ".join(f"{n} with {tokens} tokens" for tokens, n in empty.items())
    title = f"Eigenvalues below {EMPTY:g} of their mean, out of {len(gram)}:\n{counts}"
    y = f"eigenvalue / mean\n(log scale; cut off at {EMPTY:g})"
    label(axes, title, "eigenvalue, largest first", y)
    return fig


EMPTY = 1e-4  # of the mean eigenvalue; the largest is hundreds of times the mean, and the sums are in float32
MOVED = LinearSegmentedColormap.from_list("moved", ("#d5d9de", "#7d9cc0", "#16324f"))  # zeros are white
THRESHOLD = 0.05  # of the median weight


def freeze_column(
    weight: Float[Tensor, "O I"], values: Float[Tensor, "O"], upper: Float[Tensor, "I I"], j: int
) -> Float[Tensor, "O I"]:
    """Return the weight after column j took the given values and the columns to its right were updated."""
    # w_k − (w_j − v) U_jk / U_jj for k ≥ j; at k = j this is v
    direction = (upper[j, j:] / upper[j, j])[None]
    rest = weight[:, j:].addmm((weight[:, j] - values)[:, None], direction, alpha=-1)
    return torch.cat([weight[:, :j], rest], dim=1).index_copy(1, torch.tensor([j]), values[:, None].to(weight.dtype))


def sweep_states(
    weight: Float[Tensor, "O I"], upper: Float[Tensor, "I I"], block_size: int, columns: tuple[int, ...]
) -> dict[int, Float[Tensor, "O I"]]:
    """Prune half of the weights column by column; return the matrix after each of these numbers of columns."""
    states, now = {}, weight
    for j in range(max(columns)):
        if j % block_size == 0:
            block = slice(j, j + block_size)
            keep = Unstructured(0.5, per="layer").keep((now[:, block] / upper.diagonal()[block]).square())
        now = freeze_column(now, now[:, j] * keep[:, j % block_size], upper, j)
        if j + 1 in columns:
            states[j + 1] = now
    return states


def sweep(
    weight: Tensor | None = None, states: Mapping[int, Tensor] | None = None, columns: tuple[int, ...] = (32, 64, 96)
) -> Figure:
    """Plot the matrix at several moments of the sweep: white is zero, and dark weights were updated most.

    Args:
        states: the matrix by the number of columns that are frozen.
    """
    if weight is None or states is None:
        weight, gram = example_layer()
        n_inputs = max(96, *columns)
        weight, hessian = weight[:32, :n_inputs], damped(gram)[:n_inputs, :n_inputs]
        upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
        states = sweep_states(weight, upper, 32, columns)
    fig, axes = figure(len(states), width=3.4, height=3.1)
    scale = weight.abs().median().item()
    for panel, (column, now) in zip(axes, states.items(), strict=True):
        moved = ((now - weight).abs() / scale).masked_fill(now == 0, torch.nan)
        shown = panel.imshow(moved, cmap=MOVED, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.axvline(column - 0.5, color=COLOURS[1], linewidth=2)
        zeros = 100 * (now == 0).float().mean().item()
        right = (now - weight)[:, column:].abs() > THRESHOLD * scale
        text = f"{column} columns frozen, {zeros:.0f} % zero"
        if right.numel():
            text += f"\n{100 * right.float().mean():.0f} % of the others updated"
        label(panel, text, "input")
    axes[0].set_ylabel("output")
    bar = fig.colorbar(shown, ax=axes, shrink=0.85, extend="max")
    bar.set_label(f"|change| / median |weight|\n(counted above from {THRESHOLD:g})", fontsize=9)
    return fig


def half_sweep() -> Figure:
    """Plot the matrix in the middle of the sweep."""
    return sweep(columns=(48,))


def layer_errors(
    by_layer: Mapping[str, Mapping[str, float]] | None = None,
    better: str = "SparseGPT",
    than: str = "its mask, no updates",
) -> Figure:
    """Plot the relative error ‖X(W − Ŵ)ᵀ‖² / ‖XWᵀ‖² by layer and method."""
    by_layer = by_layer or errors_in_block(*example_block(), METHODS, n_outputs=64)
    fig, (axes,) = figure(width=7.6, height=3.8)
    methods = list(next(iter(by_layer.values())))
    for index, method in enumerate(methods):
        places = [i + 0.13 * (index - (len(methods) - 1) / 2) for i in range(len(by_layer))]
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(places, [100 * errors[method] for errors in by_layer.values()], label=method, **look)
    axes.set_xticks(range(len(by_layer)), [layer.split(".")[-1] for layer in by_layer])
    log_scale(axes, "y")
    axes.margins(y=0.08)
    fig.legend(frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    ratios = [errors[better] / errors[than] for errors in by_layer.values()]
    title = f"{better}: {min(ratios):.2f} to {max(ratios):.2f} times the error of “{than}”"
    label(axes, title, "", "relative error of the output\n(%, log scale)")
    return fig


def block_sizes(seconds: Mapping[int, float], errors: Mapping[int, float]) -> Figure:
    """Plot the time and the layer error of the solver against its block size."""
    fig, (left, right) = figure(2, width=4.2, height=3.2)
    sizes, x = list(seconds), "columns in a block (log scale)"
    left.plot(sizes, [1e3 * seconds[size] for size in sizes], **line_style(0))
    right.plot(sizes, [100 * errors[size] for size in sizes], **line_style(1))
    for panel in (left, right):
        log_scale(panel, "x")
        panel.set_xticks(sizes, [str(size) for size in sizes])
    left.set_ylim(0, 1.12 * max(left.lines[0].get_ydata()))
    right.margins(y=0.2)
    slow, fast = max(seconds, key=seconds.get), min(seconds, key=seconds.get)
    times = seconds[slow] / seconds[fast]
    title = f"Blocks of {slow} take {times:.1f} times\nas long as blocks of {fast}"
    label(left, title, x, "milliseconds, best of three")
    worst, best = max(errors, key=errors.get), min(errors, key=errors.get)
    more = 100 * (errors[worst] / errors[best] - 1)
    title = f"Blocks of {worst} have a {more:.0f} %\nlarger error than blocks of {best}"
    label(right, title, x, "relative error of the output (%)")
    return fig


def by_pattern(tables: Tables | None = None, corpus: str = "wikipedia") -> Figure:
    """Plot the perplexity with half of the weights, by pattern and method, with standard errors."""
    tables = tables or stored_tables()
    fig, (axes,) = figure(width=7.6)
    (dense,) = rows(tables, "perplexity", method="dense", corpus=corpus)
    by_method = {
        name: [rows(tables, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in PATTERNS]
        for method, name in NAMES.items()
    }
    series = {name: [(row["perplexity"], row["standard_error"]) for row in cells] for name, cells in by_method.items()}
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label=f"dense, {dense['perplexity']:.1f}")
    side_by_side(axes, ("unstructured", "4:8", "2:4"), series)
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.03))
    by_pattern = zip(PATTERNS, by_method[NAMES["sparsegpt"]], by_method[NAMES["wanda"]], strict=True)
    ratios = ", ".join(f"{a['perplexity'] / b['perplexity']:.2f} at {spaced(p)}" for p, a, b in by_pattern)
    bars = error_bars(n_windows(dense))
    label(axes, f"SparseGPT's perplexity / Wanda's: {ratios}", "", f"perplexity (log scale;\n{bars})")
    return fig


def calibration_curves(tables: Tables | None = None, wanda_rows: list[dict[str, Any]] | None = None) -> Figure:
    """Plot the perplexity at 50 % over the number of calibration windows, for Wanda and SparseGPT."""
    tables = tables or stored_tables()
    wanda_rows = wanda_rows or load_measured("wanda")["tables"]["calibration"]
    fig, (axes,) = figure(width=6.8)
    means = {}
    by_name = {"Wanda": wanda_rows, "SparseGPT": tables["calibration"]}
    for index, (name, points) in enumerate(by_name.items(), start=1):  # the marks of `by_pattern`
        sizes = sorted({row["n_windows"] for row in points})
        means[name] = {n: fmean(row["perplexity"] for row in points if row["n_windows"] == n) for n in sizes}
        look = line_style(index)
        axes.plot(sizes, means[name].values(), label=name, **look | {"marker": ""})
        each = [row["n_windows"] for row in points], [row["perplexity"] for row in points]
        axes.plot(*each, **look | {"linestyle": "none"})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    log_scale(axes, "y")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))  # 1, 2 and 5 are too few here
    axes.legend(frameon=False)
    ratios = {name: curve[min(curve)] / curve[max(curve)] for name, curve in means.items()}
    times = ", ".join(f"{ratio:.1f} times with {name}" for name, ratio in ratios.items())
    title = f"With one calibration window, perplexity is higher than with {max(sizes)}:\n{times}"
    label(axes, title, "calibration windows of 512 tokens (one mark per sample)", "perplexity at 50 % (log scale)")
    return fig


OURS, MILLIONS = "SmolLM2, ours", 134.5  # parameters


def size_of(model: str) -> float:
    """The number of parameters in millions, from a name such as OPT-1.3B."""
    number = model.rsplit("-", 1)[1]
    return float(number[:-1]) * (1000 if number.endswith("B") else 1)


def by_size(tables: Tables | None = None) -> Figure:
    """Plot how many times SparseGPT raises the perplexity, by model size: the paper's models and ours."""
    tables, published = tables or stored_tables(), load_published("sparsegpt")["tables"]["opt"]
    fig, (axes,) = figure(width=8.0, height=4.2)
    dense = {row["model"]: row["perplexity"] for row in published if row["method"] == "dense"}
    ours = perplexity_row(tables, "dense", "dense")
    half = {}
    for index, pattern in enumerate(PATTERNS):
        wanted = [row for row in published if (row["method"], row["pattern"]) == ("sparsegpt", pattern)]
        ratios = {row["model"]: row["perplexity"] / dense[row["model"]] for row in wanted}
        look = line_style(index)
        axes.plot([size_of(model) for model in ratios], ratios.values(), label=f"OPT, {spaced(pattern)}", **look)
        row = perplexity_row(tables, "sparsegpt", pattern)
        gap = log_gap(ours, row)
        value = math.exp(gap.value)
        below, above = reach(value, value * gap.error)
        hollow = look | {"linestyle": "none", "markerfacecolor": "white", "markersize": 9}
        hollow |= {"label": f"{OURS}, {spaced(pattern)}", "capsize": 3}
        axes.errorbar(MILLIONS * 1.08**index, value, yerr=[[below], [above]], **hollow)
        half = half or ratios | {OURS: value}
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    axes.set_xscale("log")
    sizes = {"125M": 125, "350M": 350, "1.3B": 1300, "2.7B": 2700, "6.7B": 6700, "13B": 13000, "30B": 30000}
    axes.set_xticks([*sizes.values(), 66000, 175000], [*sizes, "66B", "175B"])
    axes.minorticks_off()
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    title = f"50 % zero: {half['OPT-125M']:.2f} times the dense perplexity with OPT-125M, "
    title += f"{half['OPT-175B']:.2f} with OPT-175B;\n{half[OURS]:.2f} with our model of 135 million weights"
    bars = error_bars(n_windows(ours))
    label(axes, title, "parameters (log scale)", f"perplexity / dense perplexity\n(log scale; {bars})")
    return fig
