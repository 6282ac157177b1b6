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
    shown = left.imshow(cosine, cmap="RdBu_r", vmin=-0.5, vmax=0.5, interpolation="nearest")
    left.grid(visible=False)
    fig.colorbar(shown, ax=left, shrink=0.8, label="cosine of two inputs", extend="both")
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


UNMOVED = LinearSegmentedColormap.from_list("moved", ("#1b4f9c", "#8fb4e0", "#cfcfcf", "#f0a08a", "#a32317"))


def sweep(weight: Tensor, states: Mapping[int, Tensor]) -> Figure:
    """The matrix at several moments of the sweep: white is zero, grey unchanged, blue and red show how far it moved.

    Args:
        states: the matrix when the columns left of the key are settled.
    """
    fig, axes = figure(len(states), width=3.2, height=2.9)
    scale = weight.abs().median().item()
    for panel, (column, now) in zip(axes, states.items(), strict=True):
        moved = ((now - weight) / scale).masked_fill(now == 0, torch.nan)
        panel.imshow(moved, cmap=UNMOVED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.axvline(column - 0.5, color="black", linewidth=1.5)
        zeros = 100 * (now == 0).float().mean().item()
        right = (now - weight)[:, column:].abs() > 0.05 * scale
        text = f"{column} columns settled, {zeros:.0f} % zero"
        if right.numel():
            text += f"\n{100 * right.float().mean():.0f} % of those to the right moved"
        label(panel, text, "input")
    axes[0].set_ylabel("output")
    return fig


def layer_errors(
    by_layer: Mapping[str, Mapping[str, float]], better: str = "SparseGPT", than: str = "its mask, no updates"
) -> Figure:
    """Relative layer errors ‖X(W − Ŵ)ᵀ‖² / ‖XWᵀ‖², by layer and method."""
    fig, (axes,) = figure(width=7.6, height=3.6)
    for index, method in enumerate(next(iter(by_layer.values()))):
        axes.plot([100 * errors[method] for errors in by_layer.values()], label=method, **line_style(index))
    axes.set_xticks(range(len(by_layer)), [layer.split(".")[-1] for layer in by_layer])
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    ratios = [errors[better] / errors[than] for errors in by_layer.values()]
    title = f"{better} has {min(ratios):.2f} to {max(ratios):.2f} times the error of: {than}"
    axes.margins(y=0.2)
    label(axes, title, "", "changed share of the output (%, log scale)")
    return fig


def block_sizes(seconds: Mapping[int, float], errors: Mapping[int, float]) -> Figure:
    """Time and layer error of the solver against its block size."""
    fig, (left, right) = figure(2, width=4.2, height=3.2)
    sizes = list(seconds)
    left.plot(sizes, [1e3 * seconds[size] for size in sizes], **line_style(0))
    right.plot(sizes, [100 * errors[size] for size in sizes], **line_style(1))
    for panel in (left, right):
        log_scale(panel, "x")
        panel.set_ylim(0, 1.12 * max(panel.lines[0].get_ydata()))
    fastest = min(seconds, key=seconds.get)
    label(left, f"Fastest in blocks of {fastest}", "columns in a block (log scale)", "milliseconds")
    spread = max(errors.values()) / min(errors.values())
    label(
        right,
        f"The error changes by a factor of {spread:.2f}",
        "columns in a block (log scale)",
        "error of the output (%)",
    )
    return fig
