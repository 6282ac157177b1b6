"""The matrix of second derivatives of a small network's error: exact, and without the residuals.

Dimension key: P patterns, O outputs, d free weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.derivatives import output_gradients
from course_lib.pruning.classic.network import Network, Patterns, error


def full_hessian(network: Network, theta: Float[Tensor, "d"], patterns: Patterns) -> Float[Tensor, "d d"]:
    """∂²E/∂w∂w', exact, by differentiating twice."""
    return torch.func.hessian(lambda each: error(network, each, patterns))(theta)


def outer_product_hessian(network: Network, theta: Float[Tensor, "d"], patterns: Patterns) -> Float[Tensor, "d d"]:
    """H = 1/P Σ X Xᵀ over patterns and outputs (Hassibi and Stork 1992; elsewhere called Gauss-Newton).

    The exact Hessian has a second part, 1/P Σ (o − t) ∂²o/∂w∂w', which vanishes where the network fits its targets.
    """
    slopes = output_gradients(network, theta, patterns.inputs)
    rows = slopes.flatten(0, 1)
    return rows.T @ rows / len(slopes)


def residual_part(network: Network, theta: Float[Tensor, "d"], patterns: Patterns) -> float:
    """How much of the exact Hessian the outer product misses: ‖H − H_outer‖ / ‖H‖, in Frobenius norm."""
    exact = full_hessian(network, theta, patterns)
    return ((exact - outer_product_hessian(network, theta, patterns)).norm() / exact.norm()).item()
