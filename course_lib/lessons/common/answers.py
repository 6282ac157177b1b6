"""Two answers side by side: the picture beside a check of numbers, of matrices, and of what is chosen by a score.

Exercises import this file, and whoever grades them draws nothing: matplotlib is imported by what draws.
"""

import torch
from torch import Tensor


def compare_bars(got: Tensor, expected: Tensor, names: tuple[str, ...], y: str) -> "matplotlib.figure.Figure":
    """One pair of bars a number, yours beside the expected one; the title says how many differ."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    both = [torch.as_tensor(values).double().flatten() for values in (got, expected)]
    fig, (axes,) = figure(width=max(4.5, 0.6 * len(names)), height=2.6)
    for values, shift, colour, hatch, who in zip(both, (-0.2, 0.2), COLOURS, ("", "//"), _WHO, strict=False):
        places = torch.arange(len(values)) + shift
        axes.bar(places, values, width=0.4, color=colour, hatch=hatch, edgecolor="white", label=who)
    axes.set_xticks(range(len(names)), names)
    axes.legend(frameon=False)
    label(axes, _n_differing(*both), "", y)
    return fig


def compare_matrices(got: Tensor, expected: Tensor, y: str, x: str) -> "matplotlib.figure.Figure":
    """Two matrices on one scale, from dark, below zero, to light, above."""
    from course_lib.lessons.common.style import figure, label

    both = [torch.as_tensor(matrix).double() for matrix in (got, expected)]
    most = max(both[1].abs().max().item(), 1e-30)
    fig, axes = figure(2, width=3.8, height=3.0)
    for panel, matrix, who in zip(axes, both, _WHO, strict=True):
        image = panel.imshow(matrix, cmap="cividis", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.locator_params(integer=True, min_n_ticks=1)
        label(panel, who, x, y if panel is axes[0] else "")
    axes[0].set_title(f"yours: {_n_differing(*both)}", loc="left", fontsize=11)
    fig.colorbar(image, ax=axes)
    return fig


def compare_chosen(worth: Tensor, got: Tensor, expected: Tensor, x: str, y: str) -> "matplotlib.figure.Figure":
    """The worth of each candidate as a bar, dark where it is chosen, in both answers.

    worth: (C,), one number a candidate. got, expected: the indices that are chosen.
    """
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, axes = figure(2, width=3.8, height=2.6)
    for panel, chosen, who in zip(axes, (got, expected), _WHO, strict=True):
        kept = set(torch.as_tensor(chosen).flatten().long().tolist())
        colours = [COLOURS[0] if place in kept else "#dfe3e8" for place in range(len(worth))]
        panel.bar(range(len(worth)), worth, color=colours, edgecolor=COLOURS[0], linewidth=0.6)
        panel.locator_params(axis="x", integer=True)
        label(panel, f"{who}: the dark ones stay", x, y if panel is axes[0] else "")
    return fig


_WHO = ("yours", "expected")


def _n_differing(got: Tensor, expected: Tensor) -> str:
    if got.shape != expected.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    n = int((~torch.isclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True)).sum())
    return f"{n} of {expected.numel()} numbers differ"
