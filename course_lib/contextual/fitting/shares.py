"""Choose one density per block, since blocks differ in how many neurons they need.

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

CLOSE = 1e-9  # sums that differ by less are equal up to rounding


def losses_alone(
    model: PreTrainedModel, selector: NeuronSelector, windows: Int[Tensor, "n N"], levels: Sequence[float]
) -> Float[Tensor, "L Q"]:
    """Return the loss in nats per token if a single block keeps each of the levels and all other blocks are dense.

    Raises:
        ValueError: a level is outside (0, 1], or there are no windows.
    """
    n_blocks, found = sizes_of(model).n_blocks, []
    for block in range(n_blocks):
        for level in levels:
            shares = tuple(level if each == block else 1.0 for each in range(n_blocks))
            with contextual(model, replace(selector, by_block=shares)):
                found.append(window_losses(model, windows, progress=False).mean())
    return torch.stack(found).view(n_blocks, len(levels))


def shares_by_block(losses: Float[Tensor, "L Q"], levels: Sequence[float], mean: float) -> tuple[float, ...]:
    """Choose the level of each block with a mean of at most `mean`: greedily, by the loss saved per added density.

    All blocks start at the lowest level. Each step raises one block to any higher level, where the saved loss per added
    density is largest. The losses of blocks are assumed to add up, which holds as long as they are small.

    Raises:
        ValueError: the levels do not increase, the losses do not fit them, or the mean is below the lowest level.
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
    """Return (loss saved per density, block, level) of every step that fits and reduces the loss."""
    return [
        ((row[here] - row[level]) / (levels[level] - levels[here]), block, level)
        for block, (row, here) in enumerate(zip(losses, at, strict=True))
        for level in range(here + 1, len(levels))
        if levels[level] - levels[here] <= room + CLOSE and row[here] > row[level]
    ]
