"""How good a prediction is: what it finds, what it asks for in vain, and how much of the output it holds.

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
    active: Bool[Tensor, "T F"],
    hidden: Float[Tensor, "T F"],
    down_norm: Float[Tensor, "F"],
) -> Scores:
    """Recall, precision and energy of a kept set; where there is nothing to find or to hold, none of it is missed.

    Raises:
        ValueError: for shapes that do not fit, or no tokens.
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
