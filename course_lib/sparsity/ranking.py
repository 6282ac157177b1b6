"""Ranking a score: exact counts, deterministic ties, and the checks before them.

Dimension key: G comparison groups, S entries in a group.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def n_pruned(size: int, sparsity: float) -> int:
    """How many of `size` entries leave: the floor of size * sparsity, where 0.29 of 100 is 29 and not 28."""
    # 0.29 * 100 is 28.999999999999996 in floats; a millionth lifts it over the edge.
    return min(math.floor(size * sparsity + 1e-6), max(size - 1, 0))


def keep_highest(score: Float[Tensor, "G S"], n_leaving: int) -> Bool[Tensor, "G S"]:
    """Drops the n lowest of each group. The stable sort makes ties leave by lower index."""
    order = torch.sort(score, dim=1, stable=True).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, order[:, :n_leaving], False)


def keep_highest_of_many(score: Float[Tensor, "S"], n_leaving: int) -> Bool[Tensor, "S"]:
    """The same for one long row, by selection instead of sorting: a model has 10^8 weights, and sorting is slow."""
    if n_leaving == 0:
        return torch.ones_like(score, dtype=torch.bool)
    edge = torch.kthvalue(score, n_leaving).values
    keep = score > edge
    tied = torch.nonzero(score == edge).flatten()
    n_tied_leaving = n_leaving - (len(score) - int(keep.sum()) - len(tied))
    keep[tied[n_tied_leaving:]] = True
    return keep


def check_sparsity(sparsity: float) -> None:
    if not 0.0 <= sparsity < 1.0:
        raise ValueError(
            f"sparsity={sparsity}: expected the fraction that leaves, in [0, 1); for half of the weights use 0.5"
        )


def check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name}={value}: expected a whole number of at least 1")


def check_score(score: Tensor) -> None:
    """Refuses what has no ranking: a score that is not a matrix of floats, holds NaN or has no data."""
    if score.ndim != 2 or not score.is_floating_point():
        raise ValueError(
            f"score of shape {tuple(score.shape)} and {score.dtype}: expected a matrix of floats (outputs, inputs); "
            "reshape it, or convert it with .float()"
        )
    if score.is_meta:
        raise ValueError("score is on the meta device and holds no numbers: load the model's weights first")
    if score.isnan().any():
        raise ValueError(
            f"score has {int(score.isnan().sum())} NaN of {score.numel()} entries: expected comparable numbers; "
            "look for NaN in the weights or in the calibration inputs"
        )
