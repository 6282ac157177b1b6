"""Figures for checks: the student's numbers, matrix or selection next to the expected one.

Exercises import this module, and the grader imports exercises without drawing. Each function therefore imports
matplotlib itself.
"""

import torch
from torch import Tensor


def compare_bars(got: Tensor, expected: Tensor, names: tuple[str, ...], y: str) -> "matplotlib.figure.Figure":
    """Plot each number of the answer as a bar next to the expected one; the title counts the numbers that differ.

    names: tick labels, one per number. y: label of the y axis.
    """
    from course_lib.lessons.common.style import COLOURS, figure, label

    answers = [torch.as_tensor(values).double().flatten() for values in (got, expected)]
    fig, (axes,) = figure(width=max(4.5, 0.6 * len(names)), height=2.6)
    for values, shift, colour, hatch, owner in zip(answers, (-0.2, 0.2), COLOURS, ("", "//"), _WHO, strict=False):
        positions = torch.arange(len(values)) + shift
        axes.bar(positions, values, width=0.4, color=colour, hatch=hatch, edgecolor="white", label=owner)
    axes.set_xticks(range(len(names)), names)
    axes.legend(frameon=False)
    label(axes, _n_differing(*answers), "", y)
    return fig


def compare_matrices(got: Tensor, expected: Tensor, y: str, x: str) -> "matplotlib.figure.Figure":
    """Plot both matrices on one colour scale, symmetric around zero: dark is negative, light is positive."""
    from course_lib.lessons.common.style import figure, label

    answers = [torch.as_tensor(matrix).double() for matrix in (got, expected)]
    limit = max(answers[1].abs().max().item(), 1e-30)
    fig, axes = figure(2, width=3.8, height=3.0)
    for panel, matrix, owner in zip(axes, answers, _WHO, strict=True):
        image = panel.imshow(matrix, cmap="cividis", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.locator_params(integer=True, min_n_ticks=1)
        label(panel, owner, x, y if panel is axes[0] else "")
    axes[0].set_title(f"yours: {_n_differing(*answers)}", loc="left", fontsize=11)
    fig.colorbar(image, ax=axes)
    return fig


def compare_chosen(worth: Tensor, got: Tensor, expected: Tensor, x: str, y: str) -> "matplotlib.figure.Figure":
    """Plot the score of each candidate as a bar, dark where the answer chooses it: one panel per answer.

    worth: (C,), the score of each candidate. got, expected: indices of the chosen candidates.
    """
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, axes = figure(2, width=3.8, height=2.6)
    for panel, selection, owner in zip(axes, (got, expected), _WHO, strict=True):
        indices = set(torch.as_tensor(selection).flatten().long().tolist())
        colours = [COLOURS[0] if index in indices else "#dfe3e8" for index in range(len(worth))]
        panel.bar(range(len(worth)), worth, color=colours, edgecolor=COLOURS[0], linewidth=0.6)
        panel.locator_params(axis="x", integer=True)
        label(panel, f"{owner}: dark bars are kept", x, y if panel is axes[0] else "")
    return fig


_WHO = ("yours", "expected")


def _n_differing(got: Tensor, expected: Tensor) -> str:
    """Count the numbers that differ by more than rounding, or name both shapes where these differ."""
    if got.shape != expected.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    n = int((~torch.isclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True)).sum())
    return f"{n} of {expected.numel()} numbers differ"
