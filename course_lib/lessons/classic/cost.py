"""What second-order pruning costs as networks grow: numbers to store and operations to spend.

Dimension key: d weights, n gradients (samples times outputs).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Of one pass over n gradients. A multiplication and an addition count as one FLOP each; leading terms only."""

    obd_bytes: int
    obd_flops: int
    obs_bytes: int
    obs_flops: int


def cost(n_weights: int, n_gradients: int, bytes_per_number: int = 4) -> Cost:
    """OBD keeps one number a weight and adds a square to it; OBS keeps d² and corrects all of them.

    The recursion multiplies H⁻¹ by X (2 d²) and subtracts a rank-one matrix (2 d²), once for every gradient.
    """
    if min(n_weights, n_gradients, bytes_per_number) < 1:
        raise ValueError(f"got {n_weights} weights, {n_gradients} gradients, {bytes_per_number} bytes: expected >= 1")
    return Cost(
        obd_bytes=bytes_per_number * n_weights,
        obd_flops=2 * n_gradients * n_weights,
        obs_bytes=bytes_per_number * n_weights**2,
        obs_flops=4 * n_gradients * n_weights**2,
    )
