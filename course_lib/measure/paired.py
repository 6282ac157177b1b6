"""Means with their standard errors, from samples that are independent of each other.

Two models read the same windows, two policies the same prompts: then their difference in each is one sample, and how
hard a window is drops out. Neighbouring tokens are hard or easy together, so a sample is a block of them, not a token.

Dimension key: P predictions.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def mean_and_error(samples: Float[Tensor, "n"] | Sequence[int | float]) -> tuple[float, float]:
    """The mean and s / √n, its standard error; one sample has no spread, and its error is infinite."""
    values = torch.as_tensor(samples, dtype=torch.float64)
    if values.ndim != 1 or len(values) < 1:
        raise ValueError(f"got samples of shape {tuple(values.shape)}; expected a row of at least one.")
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return values.mean().item(), error


def block_means(losses: Float[Tensor, "P"], size: int) -> Float[Tensor, "blocks"]:
    """The mean of each whole block of neighbouring predictions; what is left over at the end is dropped."""
    if size < 1 or len(losses) < size:
        raise ValueError(f"got {len(losses)} losses in blocks of {size}; expected at least one whole block.")
    return losses[: len(losses) // size * size].reshape(-1, size).double().mean(dim=1)


def error_of_share(n_right: int, n: int) -> float:
    """Standard error of a fraction of n questions, two right and two wrong ones added (Agresti and Coull, 1998).

    All right of 10 is then not taken for certain.
    """
    share = (n_right + 2) / (n + 4)
    return math.sqrt(share * (1 - share) / (n + 4))


def wilson(n_right: int | float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval (1927) of a share: every p from which n_right of n lies at most z of p's own errors away.

    |n_right/n − p| ≤ z √(p(1 − p)/n) is quadratic in p, and its ends never leave 0 to 1. n_right need not be whole, as
    the mean of several draws is not.
    """
    if not 0 <= n_right <= n or n < 1:
        raise ValueError(f"got {n_right} of {n}; expected 0 to n of n, n at least 1.")
    share, extra = n_right / n, z**2 / n
    middle = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra**2 / 4) / (1 + extra)
    return max(min(middle - half, share), 0.0), min(max(middle + half, share), 1.0)  # none of n is 0, not -1e-17


def error_of_shares(n_right: int, n_others_right: int, n: int) -> float:
    """Standard error of the difference of two fractions of n questions each, of which nothing else is known.

    One right and one wrong answer are added to each (Agresti and Caffo, 2000): none of 20 is not known for certain.
    Where both answered the same questions, this is rather too wide.
    """
    variances = []
    for right in (n_right, n_others_right):
        share = (right + 1) / (n + 2)
        variances.append(share * (1 - share) / (n + 2))
    return math.sqrt(sum(variances))


def error_of_paired_shares(right: str | Sequence[int], others: str | Sequence[int], times: float = 1.0) -> float:
    """Standard error of one share less `times` another, of the same questions: for each a 1 if it is right, else a 0.

    Only where the two answer differently does a question say which is better; half a question is added to each of the
    four ways of answering (Agresti and Min, 2005), so that two of which all answers agree are not known for certain.

    Raises:
        ValueError: not the same number of questions, or none.
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
