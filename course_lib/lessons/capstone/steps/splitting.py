"""A budget of bytes, split over the parts of a model.

Dimension key: P parts, L levels of each, from the smallest to the largest.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def levels_within(sizes: Int[Tensor, "P L"], losses: Float[Tensor, "P L"], budget: int) -> Int[Tensor, "P"]:
    """The level of each part: from the smallest on, always the step that saves most loss a byte among those that fit.

    Where each step of a part is worth less a byte than the one before it, no choice of as many bytes loses less, as
    long as no step was passed over because it did not fit (Fox, Discrete optimization via marginal analysis, 1966).
    """
    more, saved = sizes.diff(dim=1), -losses.double().diff(dim=1)
    parts, levels = torch.arange(len(sizes)), torch.zeros(len(sizes), dtype=torch.long)
    while True:
        at = levels.clamp(max=more.shape[1] - 1)
        left = budget - sizes[parts, levels].sum()
        fits = (levels < more.shape[1]) & (more[parts, at] <= left)
        if not fits.any():
            return levels
        levels[torch.where(fits, saved[parts, at] / more[parts, at], -torch.inf).argmax()] += 1
