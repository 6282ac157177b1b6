"""Derivatives of a small network: gradients of its outputs and of its error, and Hessians, exact and without residuals.

Gradients are taken for all samples at once by hand-written backpropagation.

Dimension key: P samples, I inputs, O outputs, d free weights; in a layer J inputs (1 more for the bias), K outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.network import Network, Samples, activation, error


def with_bias(units: Float[Tensor, "P J"]) -> Float[Tensor, "P J1"]:
    """Return the inputs of a layer: the units below, and a unit that is always 1."""
    return torch.cat([units, units.new_ones(len(units), 1)], dim=1)


def output_gradients(
    network: Network, theta: Float[Tensor, "d"], inputs: Float[Tensor, "P I"]
) -> Float[Tensor, "P O d"]:
    """Return X of OBS: the gradient of every OUTPUT (not of the error) by the weights, for every pattern."""
    units, layers = network.activities(theta, inputs), network.layers(theta)
    slope = activation(network.output).first(units[-1])
    back = torch.diag_embed(slope)  # (P, O, K): how output o moves with the input of unit k; here k is an output
    parts = []
    for index in range(len(layers) - 1, -1, -1):
        parts.append((back[..., None] * with_bias(units[index])[:, None, None, :]).flatten(2))
        if index:
            back = (back @ layers[index][:, :-1]) * activation(network.hidden).first(units[index])[:, None, :]
    return network.collect(torch.cat(parts[::-1], dim=2))


def residuals(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "P O"]:
    """Return o − t for every pattern and output."""
    return network(theta, samples.inputs) - samples.targets


def error_gradient(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "d"]:
    """Return ∂E/∂w of the error E = 1/(2P) Σ ‖t − o‖². It is zero at a minimum."""
    slopes = output_gradients(network, theta, samples.inputs)
    return torch.einsum("po,pod->d", residuals(network, theta, samples), slopes) / len(slopes)


def full_hessian(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "d d"]:
    """Return the exact Hessian ∂²E/∂w∂w' by differentiating twice."""
    return torch.func.hessian(lambda weights: error(network, weights, samples))(theta)


def outer_product_hessian(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "d d"]:
    """Return H = 1/P Σ X Xᵀ over samples and outputs (Hassibi and Stork 1992; elsewhere called Gauss-Newton).

    The exact Hessian has a second part, 1/P Σ (o − t) ∂²o/∂w∂w', which is zero if the network fits its targets.
    """
    slopes = output_gradients(network, theta, samples.inputs)
    rows = slopes.flatten(0, 1)
    return rows.T @ rows / len(slopes)


def outer_product_diagonal(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "d"]:
    """Return only the diagonal of the outer-product Hessian, 1/P Σ X²: one number per weight, no matrix.

    For a Gaussian likelihood with variance 1, this is the diagonal of the Fisher information.
    """
    return output_gradients(network, theta, samples.inputs).square().sum(1).mean(0)


def squared_gradients(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, "d"]:
    """Return 1/P Σ g², with g the gradient of a pattern's own ERROR: the diagonal of the empirical Fisher information.

    With one output g = (o − t) X, so the squared residual weights every pattern. It is 0 if the network fits the
    pattern.
    """
    slopes = output_gradients(network, theta, samples.inputs)
    return torch.einsum("po,pod->pd", residuals(network, theta, samples), slopes).square().mean(0)


def residual_part(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> float:
    """Return the part of the exact Hessian that the outer product misses: ‖H − H_outer‖ / ‖H‖, in Frobenius norm."""
    exact = full_hessian(network, theta, samples)
    return ((exact - outer_product_hessian(network, theta, samples)).norm() / exact.norm()).item()
