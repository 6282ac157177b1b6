"""A layer pruned by Wanda's score and rounded to a grid of what stays.

Dimension key: O outputs (rows), I inputs (columns), G groups of columns in a row.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def pruned_and_rounded(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"], n_kept: int, bits: int, group: int
) -> Float[Tensor, "O I"]:
    """The n_kept weights of each row with the largest |w| · norm, each at the nearest of 2^bits values that lie evenly
    between the smallest and the largest that stay in its group; 0 elsewhere.

    A grid of a smallest value and a step, as the default model's weights were stored in (Q4_1). It has no code for 0:
    a mask says where that is.

    Args:
        norm: of what each input receives. group: columns that share a grid; it divides I.
    """
    score = norm * weight.abs()
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, score.topk(n_kept, dim=1).indices, True)
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(dim=2, keepdim=True)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(dim=2, keepdim=True)
    n_steps = 2**bits - 1
    step = (high - low) / n_steps
    by_group = weight.unflatten(1, (-1, group))
    # One weight alone in its group has a step of 0; a group of which nothing stays has no ends at all.
    codes = torch.where(step > 0, (by_group - low) / step, 0).round().clamp(0, 2**bits - 1)
    return torch.where(keep, (low + codes * step).flatten(1), 0)
