"""Two answers side by side: the picture beside a check of which weights, blocks or slots stay.

Exercises import this file, and whoever grades them draws nothing: matplotlib is imported by what draws.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def compare_masks(got: Tensor, expected: Tensor, group: int | None = None) -> "matplotlib.figure.Figure":
    """Two keep masks side by side (dark stays), the first differing row outlined, groups of inputs ruled off."""
    from matplotlib.patches import Rectangle

    from course_lib.lessons.common.style import figure

    got, expected = torch.as_tensor(got).bool(), torch.as_tensor(expected).bool()
    fig, axes = figure(2, width=4.2, height=3.0)
    different = (got != expected).any(dim=1).nonzero().flatten()
    for panel, mask, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.imshow(mask, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.locator_params(integer=True)
        panel.set_title(f"{name}: {int(mask.sum())} of {mask.numel()} stay", loc="left", fontsize=10)
        panel.set_xlabel("input")
        for edge in range(group or 0, mask.shape[1], group or mask.shape[1]):
            panel.axvline(edge - 0.5, color="#8d99ae", linewidth=0.6)
        if len(different):
            corner = (-0.5, int(different[0]) - 0.5)
            panel.add_patch(Rectangle(corner, mask.shape[1], 1, fill=False, edgecolor="#c8553d", linewidth=2))
    axes[0].set_ylabel("output")
    return fig


def compare_slots(n_tokens: int, got: Tensor | Sequence[int], expected: Sequence[int]) -> "matplotlib.figure.Figure":
    """Which tokens of a text are kept, dark, in both answers; those that differ are struck through."""
    from course_lib.lessons.common.style import COLOURS, figure

    fig, (axes,) = figure(width=7.2, height=1.5)
    sets = [set(torch.as_tensor(answer).long().tolist()) for answer in (got, expected)]
    shown = max([n_tokens, *(token + 1 for kept in sets for token in kept)])
    rows = torch.tensor([[float(token in kept) for token in range(shown)] for kept in sets])
    axes.imshow(rows, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    for token in sets[0] ^ sets[1]:
        axes.plot([token, token], [-0.5, 1.5], color=COLOURS[1], linewidth=1)
    axes.grid(visible=False)
    axes.set_yticks((0, 1), ("yours", "expected"))
    axes.set_xlabel("token of the text")
    axes.set_title(f"{len(sets[0] ^ sets[1])} tokens differ", loc="left", fontsize=10)
    return fig


def compare_rounding(row: Tensor, got: Tensor, expected: Tensor, group: int) -> "matplotlib.figure.Figure":
    """How far rounded numbers (D,) lie from those they stand for, in both answers, groups ruled off."""
    from course_lib.lessons.common.style import COLOURS, figure

    row, got, expected = (torch.as_tensor(x).double().flatten() for x in (row, got, expected))
    fig, (axes,) = figure(width=7.2, height=2.6)
    place = torch.arange(len(row))
    axes.plot(place, expected - row, "o", color=COLOURS[0], markersize=6, fillstyle="none", label="expected")
    axes.plot(place, got - row, "x", color=COLOURS[1], markersize=5, label="yours")
    for edge in range(group, len(row), group):
        axes.axvline(edge - 0.5, color="#8d99ae", linewidth=0.6)
    axes.set_xlabel("number of the row, groups ruled off")
    axes.set_ylabel("rounded less exact")
    axes.legend(loc="upper right")
    axes.set_title(
        f"error up to {(got - row).abs().max():.3g}, expected {(expected - row).abs().max():.3g}",
        loc="left",
        fontsize=10,
    )
    return fig


def compare_grids(got: Tensor, expected: Tensor, columns: str, rows: str) -> "matplotlib.figure.Figure":
    """Two tables of numbers side by side in one scale of greys; a cross where they differ by more than rounding."""
    from course_lib.lessons.common.style import COLOURS, figure

    got, expected = torch.as_tensor(got).double(), torch.as_tensor(expected).double()
    fig, axes = figure(2, width=4.2, height=2.6)
    scale = {"vmin": float(expected.min()), "vmax": float(expected.max()) + 1e-12}
    for panel, numbers, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.imshow(numbers, cmap="Greys", aspect="auto", interpolation="nearest", **scale)
        panel.grid(visible=False)
        panel.locator_params(integer=True)
        panel.set_title(f"{name}: {numbers.min():.3g} to {numbers.max():.3g}", loc="left", fontsize=10)
        panel.set_xlabel(columns)
    axes[0].set_ylabel(rows)
    if got.shape == expected.shape:
        differs = ~torch.isclose(got, expected, rtol=1e-3, atol=1e-5 * (expected.abs().max().item() + 1e-12))
        row, column = differs.nonzero(as_tuple=True)
        axes[0].plot(column, row, "x", color=COLOURS[1], markersize=5)
    return fig
