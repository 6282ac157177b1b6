"""Ranking a score: exact counts, deterministic ties, and the checks before them.

Dimension key: G comparison groups, S entries in a group.
"""

import math

import numpy
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def n_pruned(size: int, sparsity: float) -> int:
    """How many of `size` entries leave: the floor of size * sparsity, where 0.29 of 100 is 29 and not 28."""
    # 0.29 * 100 is 28.999999999999996 in floats; a millionth lifts it over the edge.
    return min(math.floor(size * sparsity + 1e-6), max(size - 1, 0))


def keep_highest(score: Float[Tensor, "G S"], n_leaving: int) -> Bool[Tensor, "G S"]:
    """Drops the n lowest of each group, exactly n whatever the ties: among equal scores the lower index leaves.

    The result is that of a stable sort, in linear time: a model has 10^8 weights, and even one sort of them is slow.
    """
    if n_leaving == 0 or score.numel() == 0:
        return torch.ones_like(score, dtype=torch.bool)
    edge = nth_smallest(score, n_leaving)
    keep = score > edge
    n_missing = score.shape[1] - n_leaving - keep.sum(dim=1, keepdim=True)
    if not n_missing.any():
        return keep
    tied = score == edge
    place_from_the_end = tied.flip(1).cumsum(1, dtype=torch.int32).flip(1)
    return keep | (tied & (place_from_the_end <= n_missing))


def nth_smallest(score: Float[Tensor, "G S"], n: int) -> Float[Tensor, "G 1"]:
    """The n-th smallest entry of each row. On the CPU numpy's partition is several times faster than torch's."""
    if score.device.type != "cpu":
        return score.kthvalue(n, dim=1, keepdim=True).values
    exact = score.float() if score.dtype == torch.bfloat16 else score  # numpy has no bfloat16
    nth = numpy.partition(exact.detach().numpy(), n - 1, axis=1)[:, n - 1 : n]
    return torch.from_numpy(nth.copy()).to(score.dtype)


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
