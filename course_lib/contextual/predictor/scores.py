"""Measure a prediction: its recall, its precision, and the fraction of the output's energy that it keeps.

Dimension key: T tokens, F neurons.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class Scores(NamedTuple):
    """All three are ratios of sums over tokens and neurons, not means of the tokens' ratios."""

    recall: float  # of the active neurons, those that were kept
    precision: float  # of the kept neurons, those that are active
    energy: float  # Σ (h_i ‖w_i‖)² over the kept neurons, of that over all


def scores(
    keep: Bool[Tensor, "T F"],
    active: Bool[Tensor, "_ _"],
    hidden: Float[Tensor, "_ _"],
    down_norm: Float[Tensor, "_"],
) -> Scores:
    """Compute recall, precision and energy of a kept set; each is 1 if its denominator is zero.

    Args:
        keep, active, hidden: (T, F), of the same tokens: the kept neurons, the labels, and the values h of all neurons.
        down_norm: (F,), the norms ‖w_i‖.

    Raises:
        ValueError: the shapes do not fit each other, or there are no tokens.
    """
    shapes = [tuple(each.shape) for each in (keep, active, hidden)]
    if len(set(shapes)) > 1 or keep.numel() == 0 or down_norm.shape != keep.shape[1:]:
        raise ValueError(
            f"got keep, active and hidden of shapes {shapes} and norms of shape {tuple(down_norm.shape)}; expected "
            "(tokens, neurons) three times, and (neurons,)."
        )
    energy = (hidden.float() * down_norm).square()
    both = (keep & active).sum()
    return Scores(_share(both, active.sum()), _share(both, keep.sum()), _share(energy[keep].sum(), energy.sum()))


def _share(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole else 1.0
