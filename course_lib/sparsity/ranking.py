"""Rankings of a score: exact counts, deterministic ties, and the checks before them.

Dimension key: G comparison groups, S entries in a group.
"""

import math
from numbers import Integral, Real

import numpy
import torch
from jaxtyping import Bool, Float, Int8
from torch import Tensor


def n_pruned(size: int, sparsity: float) -> int:
    """Return how many of `size` entries are pruned: floor(size * sparsity), where 0.29 of 100 is 29 and not 28."""
    # 0.29 * 100 is 28.999999999999996 in floats; a millionth lifts it over the edge.
    return min(math.floor(size * sparsity + 1e-6), max(size - 1, 0))


def keep_highest(score: Float[Tensor, "G S"], n_leaving: int) -> Bool[Tensor, "G S"]:
    """Prune the n lowest entries of each group, exactly n also with ties: of equal scores the lower index first.

    The result is that of a stable sort, but without sorting: a model has 10^8 weights.
    """
    if n_leaving == 0 or score.numel() == 0:
        return torch.ones_like(score, dtype=torch.bool)
    if score.shape[1] <= 4:
        return _n_that_leave_before(score) >= n_leaving
    if score.device.type != "cpu" and len(score) == 1:
        return _keep_by_sorting(score, n_leaving)
    edge = _nth_smallest(score, n_leaving)
    keep = score >= edge
    # Ties at the edge are the rule, since weights stored in 8 or 16 bits repeat. Their places come in order.
    groups, places = (score == edge).nonzero(as_tuple=True)
    n_tied = torch.bincount(groups, minlength=len(score))
    nth_of_tied = torch.arange(len(groups), device=score.device) - (n_tied.cumsum(0) - n_tied)[groups]
    leaves = nth_of_tied < (n_leaving - (~keep).sum(1))[groups]
    keep[groups[leaves], places[leaves]] = False
    return keep


def _keep_by_sorting(score: Float[Tensor, "G S"], n_leaving: int) -> Bool[Tensor, "G S"]:
    """Rank by sorting: a GPU sorts a long group with all multiprocessors, but selects the n-th value with only one."""
    order = score.sort(dim=1, stable=True).indices
    return torch.ones_like(score, dtype=torch.bool).scatter_(1, order[:, :n_leaving], False)


def _n_that_leave_before(score: Float[Tensor, "G S"]) -> Int8[Tensor, "G S"]:
    """Count for each entry how many of its group are pruned before it: S^2 comparisons, for N:M faster than sorting."""
    columns = score.unbind(1)
    before = torch.zeros(score.shape, dtype=torch.int8, device=score.device)
    for i, column in enumerate(columns):
        for j, other in enumerate(columns):
            if j != i:
                before[:, i] += other <= column if j < i else other < column
    return before


def _nth_smallest(score: Float[Tensor, "G S"], n: int) -> Float[Tensor, "G 1"]:
    """Return the n-th smallest entry of each group. On a CPU numpy's partition is much faster than torch's."""
    if score.device.type != "cpu":
        return score.kthvalue(n, dim=1, keepdim=True).values
    exact = score.float() if score.dtype == torch.bfloat16 else score  # numpy has no bfloat16
    nth = numpy.partition(exact.detach().numpy(), n - 1, axis=1)[:, n - 1 : n]
    return torch.from_numpy(nth.copy()).to(score.dtype)


def check_sparsity(sparsity: object) -> None:
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real) or not 0.0 <= sparsity < 1.0:
        raise ValueError(
            f"sparsity={sparsity!r}: expected the fraction to prune, in [0, 1); for half of the weights use 0.5"
        )


def check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r}: expected a whole number of at least 1")


def all_finite(values: Tensor) -> bool:
    """Return whether no entry is NaN or infinite.

    We check the sum first, which takes a thirtieth of the time: if any entry is not finite, neither is the sum. A sum
    of finite entries can also overflow, so then we check every entry.
    """
    total = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
    return bool(total.isfinite()) or bool(values.isfinite().all())


def check_matrix(name: str, value: object) -> None:
    """Raise ValueError for anything but a matrix of floats."""
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{name} is a {type(value).__name__}: expected a tensor (outputs, inputs); for a list, torch.tensor(...)"
        )
    if value.ndim != 2 or not value.is_floating_point():
        raise ValueError(
            f"{name} of shape {tuple(value.shape)} and {value.dtype}: expected a matrix of floats (outputs, inputs); "
            "reshape it, or convert it with .float()"
        )


def check_score(score: object) -> None:
    """Raise ValueError for a score that cannot be ranked: not a matrix of floats, with NaN, or without data."""
    check_matrix("score", score)
    if score.is_meta:
        raise ValueError("score is on the meta device and holds no numbers: load the model's weights first")
    if score.isnan().any():
        raise ValueError(
            f"score has {int(score.isnan().sum())} NaN of {score.numel()} entries: expected comparable numbers; "
            "look for NaN in the weights or in the calibration inputs"
        )
