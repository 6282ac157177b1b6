"""A density of its own for each block, since blocks differ in how many neurons they need.

Dimension key: L blocks, Q levels, n windows of N tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.apply import contextual
from course_lib.contextual.selector import NeuronSelector, check_density
from course_lib.contextual.sizes import sizes_of
from course_lib.measure.perplexity import window_losses

CLOSE = 1e-9  # sums of shares that differ by rounding alone are the same


def losses_alone(
    model: PreTrainedModel, selector: NeuronSelector, windows: Int[Tensor, "n N"], levels: Sequence[float]
) -> Float[Tensor, "L Q"]:
    """The loss, in nats per token, where one block keeps each of the levels and all others are dense.

    Raises:
        ValueError: for a level outside (0, 1], or no windows.
    """
    n_blocks, found = sizes_of(model).n_blocks, []
    for block in range(n_blocks):
        for level in levels:
            shares = tuple(level if each == block else 1.0 for each in range(n_blocks))
            with contextual(model, replace(selector, by_block=shares)):
                found.append(window_losses(model, windows, progress=False).mean())
    return torch.stack(found).view(n_blocks, len(levels))


def shares_by_block(losses: Float[Tensor, "L Q"], levels: Sequence[float], mean: float) -> tuple[float, ...]:
    """The level of each block, of a mean of at most `mean`, for the least loss: greedily by loss saved per share.

    All blocks begin at the lowest level; the step that saves most for what it adds, to any higher level, comes first.
    Losses of blocks are taken to add up, which they do as long as they are small.

    Raises:
        ValueError: levels that do not rise, losses that do not fit them, or a mean below the lowest level.
    """
    for level in levels:
        check_density(level)
    if list(levels) != sorted(set(levels)) or losses.ndim != 2 or losses.shape[1] != len(levels):
        raise ValueError(
            f"got losses {tuple(losses.shape)} for levels {tuple(levels)}; expected (blocks, levels), levels rising."
        )
    if mean < levels[0] - CLOSE:
        raise ValueError(f"got a mean of {mean}; expected at least the lowest level, {levels[0]}.")
    at, room = [0] * len(losses), (mean - levels[0]) * len(losses)
    while steps := _steps(losses.tolist(), levels, at, room):
        _, block, level = max(steps)
        room -= levels[level] - levels[at[block]]
        at[block] = level
    return tuple(levels[each] for each in at)


def _steps(
    losses: list[list[float]], levels: Sequence[float], at: list[int], room: float
) -> list[tuple[float, int, int]]:
    """(loss saved per share, block, level) of every step that fits and saves something."""
    return [
        ((row[here] - row[level]) / (levels[level] - levels[here]), block, level)
        for block, (row, here) in enumerate(zip(losses, at, strict=True))
        for level in range(here + 1, len(levels))
        if levels[level] - levels[here] <= room + CLOSE and row[here] > row[level]
    ]
