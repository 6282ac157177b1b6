"""The figures of lesson 03. Each takes data, and returns a figure whose title says what the data show.

Dimension key: O outputs of a layer, I its inputs.
"""

from collections.abc import Mapping

import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale


def what_others_explain(gram: Tensor, upper: Tensor, n_tokens: int, name: str, corner: int = 96) -> Figure:
    """Cosines among some inputs, and of every input the share that the others together explain.

    Inputs without any relation would seem explained too, by chance: to I / N with N tokens.
    """
    fig, (left, right) = figure(2, width=4.4, height=3.7)
    size = gram.diagonal().sqrt().clamp(min=1e-30)
    cosine = (gram / (size[:, None] * size))[:corner, :corner]
    shown = left.imshow(cosine.abs(), cmap="Greys", vmin=0, vmax=0.5, interpolation="nearest")
    left.grid(visible=False)
    fig.colorbar(shown, ax=left, shrink=0.8, label="cosine of two inputs, without its sign", extend="max")
    pairs = cosine[~torch.eye(len(cosine), dtype=torch.bool)].abs().median().item()
    label(left, f"{name}:\ntwo inputs have little in common ({pairs:.2f})", "input", "input")
    explained, chance = explained_share(gram, upper), len(gram) / n_tokens
    right.hist(100 * explained, bins=40, range=(0, 100), color=COLOURS[0])
    for value, dash, text in ((explained.median().item(), "--", "median"), (chance, ":", "by chance")):
        right.axvline(
            100 * value, color=COLOURS[1], linestyle=dash, linewidth=1.4, label=f"{text}: {100 * value:.0f} %"
        )
    right.legend(frameon=False, fontsize=9, loc="upper right")
    title = f"All together explain {100 * explained.median():.0f} % of an input"
    label(right, title, "share of an input that all others explain (%)", "inputs")
    return fig


def explained_share(gram: Tensor, upper: Tensor) -> Tensor:
    """1 − 1 / (H_jj [H⁻¹]_jj) for each input (I,), with [H⁻¹]_jj the squared length of column j of U."""
    return (1 - 1 / (gram.diagonal() * upper.square().sum(0))).clamp(0, 1)


def objective(weight: Tensor, gram: Tensor) -> Figure:
    """The squared error of one output while two of its weights change, whose inputs are as large and go together.

    The error is δᵀ G δ for the changes δ of the two, as a share of the output's squared size.
    """
    fig, (axes,) = figure(width=6.8, height=4.0)
    first, second = _related_pair(gram)
    row = weight[weight[:, first].abs().argsort()[len(weight) // 2]]  # the output whose first weight is in the middle
    pair, whole = gram[[first, second]][:, [first, second]], row @ gram @ row
    deleted = torch.stack([-row[first], torch.zeros(())])
    repaired = torch.stack([-row[first], row[first] * pair[0, 1] / pair[1, 1]])
    costs = [(100 * (d @ pair @ d) / whole).item() for d in (deleted, repaired)]
    ticks = 1.9 * row[first].abs().item() * torch.linspace(-1, 1, 121)
    x, y = torch.meshgrid(ticks, ticks, indexing="xy")
    share = 100 * (pair[0, 0] * x**2 + 2 * pair[0, 1] * x * y + pair[1, 1] * y**2) / whole
    lines = axes.contour(x, y, share, levels=[c * costs[0] for c in (0.1, 0.3, 0.6, 1, 2)], colors="#8d99ae")
    axes.clabel(lines, fmt="%.2g %%", fontsize=9)
    axes.axvline(deleted[0].item(), color=COLOURS[4], linestyle=":", linewidth=1.4)
    named = {"as trained": torch.zeros(2), "first weight deleted": deleted, "the second makes up for it": repaired}
    for index, (name, point) in enumerate(named.items()):
        axes.plot(*point.tolist(), label=name, markersize=9, **line_style(index) | {"linestyle": "none"})
    axes.annotate("", repaired.tolist(), deleted.tolist(), arrowprops={"arrowstyle": "->", "color": "black"})
    fig.legend(frameon=False, fontsize=10, loc="outside right center")
    title = f"Deleting one weight changes {costs[0]:.2g} % of an output,\n{costs[1]:.2g} % once a second weight moves"
    label(axes, title, "change of the first weight", "change of the second weight")
    return fig


def _related_pair(gram: Tensor) -> tuple[int, int]:
    """Two inputs with a cosine of about 0.7, either way, and of about the same size, so that ellipses are seen."""
    size = gram.diagonal().sqrt().clamp(min=1e-30)
    cosine = (gram / (size[:, None] * size)).abs()
    unlike = (cosine - 0.7).abs() + (size[:, None] / size).log().abs()
    return divmod(int(unlike.fill_diagonal_(torch.inf).argmin()), len(gram))


def spectrum(grams: Mapping[int, Tensor], damping: float) -> Figure:
    """Eigenvalues of XᵀX over their mean, largest first, by the number of tokens that X holds; and the damping."""
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
    found = ", ".join(f"{n} with {tokens}" for tokens, n in empty.items())
    title = f"Directions of {len(gram)} that hardly any token points to:\n{found} tokens"
    y = f"eigenvalue, over their mean\n(log scale; cut off at {EMPTY:g})"
    label(axes, title, "direction of the input, largest first", y)
    return fig


EMPTY = 1e-4  # of the mean eigenvalue: the largest is hundreds of it, and the sums are in float32
MOVED = LinearSegmentedColormap.from_list("moved", ("#d5d9de", "#7d9cc0", "#16324f"))  # zero is white beside it
THRESHOLD = 0.05  # of the median weight


def sweep(weight: Tensor, states: Mapping[int, Tensor]) -> Figure:
    """The matrix at several moments of the sweep: white is zero, and the darker a weight, the further it has moved.

    Args:
        states: the matrix when the columns left of the key are settled.
    """
    fig, axes = figure(len(states), width=3.4, height=3.1)
    scale = weight.abs().median().item()
    for panel, (column, now) in zip(axes, states.items(), strict=True):
        moved = ((now - weight).abs() / scale).masked_fill(now == 0, torch.nan)
        shown = panel.imshow(moved, cmap=MOVED, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.axvline(column - 0.5, color=COLOURS[1], linewidth=2)
        zeros = 100 * (now == 0).float().mean().item()
        right = (now - weight)[:, column:].abs() > THRESHOLD * scale
        text = f"{column} columns settled, {zeros:.0f} % zero"
        if right.numel():
            text += f"\n{100 * right.float().mean():.0f} % of the rest have moved"
        label(panel, text, "input")
    axes[0].set_ylabel("output")
    bar = fig.colorbar(shown, ax=axes, shrink=0.85, extend="max")
    bar.set_label(f"moved, in median weights\n(counted above from {THRESHOLD:g} on)", fontsize=9)
    return fig


def layer_errors(
    by_layer: Mapping[str, Mapping[str, float]], better: str = "SparseGPT", than: str = "its mask, no updates"
) -> Figure:
    """Relative layer errors ‖X(W − Ŵ)ᵀ‖² / ‖XWᵀ‖², by layer and method."""
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
    title = f"{better} changes {min(ratios):.2f} to {max(ratios):.2f} times as much of the output as “{than}”"
    label(axes, title, "", "changed share of the output\n(%, log scale)")
    return fig


def block_sizes(seconds: Mapping[int, float], errors: Mapping[int, float]) -> Figure:
    """Time and layer error of the solver against its block size."""
    fig, (left, right) = figure(2, width=4.2, height=3.2)
    sizes = list(seconds)
    left.plot(sizes, [1e3 * seconds[size] for size in sizes], **line_style(0))
    right.plot(sizes, [100 * errors[size] for size in sizes], **line_style(1))
    for panel in (left, right):
        log_scale(panel, "x")
        panel.set_xticks(sizes, [str(size) for size in sizes])
    left.set_ylim(0, 1.12 * max(left.lines[0].get_ydata()))
    right.margins(y=0.2)
    slow, fast = max(seconds, key=seconds.get), min(seconds, key=seconds.get)
    times = seconds[slow] / seconds[fast]
    label(left, f"Blocks of {slow} take {times:.1f} times as long as of {fast}", AT_ONCE, "milliseconds, best of three")
    worst, best = max(errors, key=errors.get), min(errors, key=errors.get)
    more = 100 * (errors[worst] / errors[best] - 1)
    title = f"Blocks of {worst} change {more:.0f} % more than of {best}"
    label(right, title, AT_ONCE, "changed share of the output (%)")
    return fig


AT_ONCE = "columns in a block (log scale)"
