"""Means and standard errors of independent samples.

If two models read the same windows, or two policies the same prompts, their difference in each is one sample, so the
difficulty of a window cancels. The losses of neighbouring tokens are correlated, so a sample is a block of tokens and
not a single token.

Dimension key: P predictions.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def mean_and_error(samples: Float[Tensor, "n"] | Sequence[int | float]) -> tuple[float, float]:
    """Return the mean and its standard error s / √n, which is infinite for one sample: the spread is unknown."""
    values = torch.as_tensor(samples, dtype=torch.float64)
    if values.ndim != 1 or len(values) < 1:
        raise ValueError(f"got samples of shape {tuple(values.shape)}; expected a row of at least one.")
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return values.mean().item(), error


def block_means(losses: Float[Tensor, "P"], size: int) -> Float[Tensor, "blocks"]:
    """Return the mean of each whole block of neighbouring predictions; the rest at the end is dropped."""
    if size < 1 or len(losses) < size:
        raise ValueError(f"got {len(losses)} losses in blocks of {size}; expected at least one whole block.")
    return losses[: len(losses) // size * size].reshape(-1, size).double().mean(dim=1)


def error_of_share(n_right: int, n: int) -> float:
    """Standard error of a fraction of n questions, with two right and two wrong answers added (Agresti, Coull, 1998).

    So, for example, 10 right answers out of 10 do not have a standard error of 0.
    """
    share = (n_right + 2) / (n + 4)
    return math.sqrt(share * (1 - share) / (n + 4))


def wilson(n_right: int | float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval (1927) of a fraction: every p from which n_right of n is at most z of p's own errors away.

    |n_right/n − p| ≤ z √(p(1 − p)/n) is quadratic in p, and its ends are always from 0 to 1. n_right need not be a
    whole number, for example if it is the mean of several random trials.
    """
    if not 0 <= n_right <= n or n < 1:
        raise ValueError(f"got {n_right} of {n}; expected 0 to n of n, n at least 1.")
    share, extra = n_right / n, z**2 / n
    middle = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra**2 / 4) / (1 + extra)
    return max(min(middle - half, share), 0.0), min(max(middle + half, share), 1.0)  # none of n is 0, not -1e-17


def error_of_shares(n_right: int, n_others_right: int, n: int) -> float:
    """Standard error of the difference of two fractions of n questions each, if we know only the two counts.

    One right and one wrong answer are added to each count (Agresti and Caffo, 2000), so that 0 of 20 does not have a
    standard error of 0. If both counts are of the same questions, this error is usually too large.
    """
    variances = []
    for right in (n_right, n_others_right):
        share = (right + 1) / (n + 2)
        variances.append(share * (1 - share) / (n + 2))
    return math.sqrt(sum(variances))


def error_of_paired_shares(right: str | Sequence[int], others: str | Sequence[int], times: float = 1.0) -> float:
    """Standard error of a fraction minus `times` another, on the same questions; 1 is a right answer and 0 a wrong one.

    Only questions with different results show which of the two is better. We add half a question to each of the four
    combinations of right and wrong (Agresti and Min, 2005), so that two equal lists do not have a standard error of 0.

    Raises:
        ValueError: different numbers of questions, or none.
    """
    if len(right) != len(others) or not len(right):
        raise ValueError(f"got {len(right)} and {len(others)} answers; expected as many of both, at least one.")
    pairs = Counter(zip(map(int, right), map(int, others), strict=True))
    weights = {(one, other): pairs[one, other] + 0.5 for one in (0, 1) for other in (0, 1)}
    n = sum(weights.values())
    mean, square = (
        sum(weight * (one - times * other) ** power for (one, other), weight in weights.items()) / n for power in (1, 2)
    )
    return math.sqrt((square - mean**2) / n)
