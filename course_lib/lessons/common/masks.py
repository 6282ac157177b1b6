"""Figures for checks of masks, slots and rounded values: the student's answer next to the expected one.

Exercises import this module, and the grader imports exercises without drawing. Each function therefore imports
matplotlib itself.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def compare_masks(
    got: Tensor,
    expected: Tensor,
    group: int | None = None,
    score: Tensor | None = None,
    columns: bool = False,
    marked: bool = True,
) -> "matplotlib.figure.Figure":
    """Plot two keep masks (O, I) side by side, kept entries dark, with an outline around the first row that differs.

    Where the masks differ only in how they break ties, no row is outlined, and the titles call both equally good.

    Args:
        group: number of consecutive inputs per group; lines separate the groups.
        score: (O, I); rows that keep entries with the same scores in every group count as equal, since a tie may be
            broken either way.
        columns: compare and outline columns instead of rows.
        marked: False for an answer that is right, however it breaks ties: nothing is outlined.
    """
    from matplotlib.patches import Rectangle

    from course_lib.lessons.common.style import figure

    got, expected = torch.as_tensor(got).bool(), torch.as_tensor(expected).bool()
    fig, axes = figure(2, width=4.2, height=3.0)
    different = _differing(got, expected, score, group, columns).nonzero().flatten() if marked else torch.empty(0)
    tied = not len(different) and not torch.equal(got, expected)  # different masks, equally good
    names = ("yours, equally good", "expected, one of several") if tied else ("yours", "expected")
    for panel, mask, name in zip(axes, (got, expected), names, strict=True):
        panel.imshow(mask, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.locator_params(integer=True, min_n_ticks=1)
        panel.set_title(f"{name}: {int(mask.sum())} of {mask.numel()} are kept", loc="left", fontsize=10)
        panel.set_xlabel("input")
        for edge in range(group or 0, mask.shape[1], group or mask.shape[1]):
            panel.axvline(edge - 0.5, color="#8d99ae", linewidth=0.6)
        if len(different):
            start = int(different[0]) - 0.5
            corner, size = ((start, -0.5), (1, len(mask))) if columns else ((-0.5, start), (mask.shape[1], 1))
            panel.add_patch(Rectangle(corner, *size, fill=False, edgecolor="#c8553d", linewidth=2))
    axes[0].set_ylabel("output")
    return fig


def _differing(got: Tensor, expected: Tensor, score: Tensor | None, group: int | None, columns: bool) -> Tensor:
    """Mark the rows (or columns) in which two masks (O, I) differ by more than the choice among equal scores: bool."""
    if score is None:
        return (got != expected).any(dim=0 if columns else 1)
    lines = [x.T if columns else x for x in (score.double(), got, expected)]
    worth, *masks = (line.reshape(len(line), -1, group or line.shape[1]) for line in lines)
    # Masks are equally good where their sorted kept scores agree group by group; pruned entries count as +inf.
    kept_scores = [worth.masked_fill(~mask, torch.inf).sort(dim=2).values for mask in masks]
    return ~torch.isclose(*kept_scores, rtol=1e-5, atol=0).all(dim=(1, 2))


def compare_numbers(got: Tensor, expected: Tensor) -> "matplotlib.figure.Figure":
    """Plot two matrices side by side on one colour scale (zero is white); outline the first entry that differs.

    Negative entries carry a dash, so that the sign is visible without colours, too.
    """
    from matplotlib.patches import Rectangle

    from course_lib.lessons.common.style import figure

    got, expected = (torch.as_tensor(x).double() for x in (got, expected))
    largest = expected.abs().max().item() or 1.0
    wrong = ~torch.isclose(got, expected, rtol=1e-4, atol=1e-6 * largest) if got.shape == expected.shape else None
    first = [] if wrong is None else wrong.nonzero()[:1].tolist()
    fig, axes = figure(2, width=4.2, height=3.0)
    for panel, matrix, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.imshow(matrix, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        panel.grid(visible=False)
        panel.locator_params(integer=True, min_n_ticks=1)
        panel.set_title(f"{name}: {int((matrix == 0).sum())} of {matrix.numel()} are zero", loc="left", fontsize=10)
        panel.set_xlabel("input (a dash: negative)")
        _dashes(panel, matrix / largest)
        for row, column in first:
            panel.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=2))
    return fig


def _dashes(panel: "matplotlib.axes.Axes", matrix: Tensor) -> None:
    """Draw a dash of half the entry's width into each negative entry: white where the entry is dark."""
    row, column = (matrix < 0).nonzero(as_tuple=True)
    if len(row):
        width = 72 * panel.get_window_extent().width / panel.figure.dpi / matrix.shape[1]  # of an entry, in points
        colours = ["white" if value < -0.5 else "black" for value in matrix[row, column]]
        panel.scatter(column, row, s=(width / 2) ** 2, c=colours, marker="_", linewidths=min(1.2, width / 8))


def compare_slots(n_tokens: int, got: Tensor | Sequence[int], expected: Sequence[int]) -> "matplotlib.figure.Figure":
    """Plot the kept tokens of a text (dark), one row per answer; a line crosses out tokens in which they differ."""
    from course_lib.lessons.common.style import COLOURS, figure

    fig, (axes,) = figure(width=7.2, height=1.5)
    sets = [set(torch.as_tensor(answer).long().tolist()) for answer in (got, expected)]
    n_columns = max([n_tokens, *(token + 1 for tokens in sets for token in tokens)])
    rows = torch.tensor([[float(token in tokens) for token in range(n_columns)] for tokens in sets])
    axes.imshow(rows, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    for token in sets[0] ^ sets[1]:
        axes.plot([token, token], [-0.5, 1.5], color=COLOURS[1], linewidth=1)
    axes.grid(visible=False)
    axes.set_yticks((0, 1), ("yours", "expected"))
    axes.set_xlabel("token of the text")
    axes.set_title(f"{len(sets[0] ^ sets[1])} tokens differ", loc="left", fontsize=10)
    return fig


def compare_rounding(row: Tensor, got: Tensor, expected: Tensor, group: int) -> "matplotlib.figure.Figure":
    """Plot the rounding errors of both answers (D,); vertical lines separate the quantization groups."""
    from course_lib.lessons.common.style import COLOURS, figure

    row, got, expected = (torch.as_tensor(x).double().flatten() for x in (row, got, expected))
    fig, (axes,) = figure(width=7.2, height=2.6)
    index = torch.arange(len(row))
    axes.plot(index, expected - row, "o", color=COLOURS[0], markersize=6, fillstyle="none", label="expected")
    axes.plot(index, got - row, "x", color=COLOURS[1], markersize=5, label="yours")
    for edge in range(group, len(row), group):
        axes.axvline(edge - 0.5, color="#8d99ae", linewidth=0.6)
    axes.set_xlabel("index in the row (lines separate groups)")
    axes.set_ylabel("rounded − exact")
    axes.legend(loc="upper right")
    axes.set_title(
        f"error up to {(got - row).abs().max():.3g}, expected {(expected - row).abs().max():.3g}",
        loc="left",
        fontsize=10,
    )
    return fig


def _written(panel: "matplotlib.axes.Axes", numbers: Tensor, scale: dict[str, float]) -> None:
    """Write each number of a table of at most 24 cells into its cell, in white where the cell is dark."""
    if numbers.numel() > 24:
        return
    middle = (scale["vmin"] + scale["vmax"]) / 2
    for row, column in torch.ones_like(numbers).nonzero().tolist():
        value = numbers[row, column].item()
        panel.text(column, row, f"{value:.3g}", ha="center", va="center", color="white" if value > middle else "black")


def compare_grids(got: Tensor, expected: Tensor, columns: str, rows: str) -> "matplotlib.figure.Figure":
    """Plot two tables of numbers side by side on one grey scale; a cross marks numbers that differ beyond rounding.

    The scale includes zero, so that a table of equal numbers is not all white. Small tables show their numbers, too.
    """
    from course_lib.lessons.common.style import COLOURS, figure

    got, expected = torch.as_tensor(got).double(), torch.as_tensor(expected).double()
    fig, axes = figure(2, width=4.2, height=2.6)
    scale = {"vmin": min(0.0, float(expected.min())), "vmax": 1.2 * max(0.0, float(expected.max())) + 1e-12}
    for panel, numbers, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.imshow(numbers, cmap="Greys", aspect="auto", interpolation="nearest", **scale)
        panel.grid(visible=False)
        panel.locator_params(integer=True, min_n_ticks=1)
        panel.set_title(f"{name}: {numbers.min():.3g} to {numbers.max():.3g}", loc="left", fontsize=10)
        panel.set_xlabel(columns)
        _written(panel, numbers, scale)
    axes[0].set_ylabel(rows)
    if got.shape == expected.shape:
        differs = ~torch.isclose(got, expected, rtol=1e-3, atol=1e-5 * (expected.abs().max().item() + 1e-12))
        row, column = differs.nonzero(as_tuple=True)
        axes[0].plot(column, row, "x", color=COLOURS[1], markersize=5)
    return fig
