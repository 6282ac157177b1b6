"""Optimal Brain Damage, LeCun, Denker, Solla, 1989, https://proceedings.neurips.cc/paper/1989/hash/6c9882bbac1c7093bd25041881277658-Abstract.html

Compute the diagonal of the Hessian in one backward pass, at the cost of a gradient.

Dimension key: P samples, d free weights; in a layer J inputs (1 more for the bias), K outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.derivatives import residuals, with_bias
from course_lib.pruning.classic.network import Network, Samples, activation


def obd_diagonal(
    network: Network, theta: Float[Tensor, "d"], samples: Samples, curvature: bool = True
) -> Float[Tensor, "d"]:
    """Compute h_kk for every free weight, averaged over samples (LeCun and others 1989).

    At the outputs  ∂²E/∂a² = f'² + (o − t) f''  (E here is half of the paper's, which has a 2 before both terms),
    below them      ∂²E/∂a_i² = f'(a_i)² Σ_l w_li² ∂²E/∂a_l² + f''(a_i) ∂E/∂x_i,
    for a weight    ∂²E/∂w_ij² = ∂²E/∂a_i² x_j²,  summed over the connections that share it.

    The step to the layer below keeps only the squares of the weights and ignores ∂²E/∂a_l∂a_m of two different units
    above. These terms are zero directly below the outputs, so the last two layers of weights are exact. Layers further
    down are not, unless the layer above has one unit. Cross terms of connections that share a weight are ignored too.

    Args:
        curvature: include the f'' terms. Without them (the Levenberg-Marquardt form) no entry is negative.
    """
    units, layers = network.activities(theta, samples.inputs), network.layers(theta)
    top, gap, on = activation(network.output), residuals(network, theta, samples), float(curvature)
    first = gap * top.first(units[-1])  # ∂E/∂a
    second = top.first(units[-1]).square() + on * gap * top.second(units[-1])  # ∂²E/∂a²
    parts = []
    for index in range(len(layers) - 1, -1, -1):
        parts.append((second.T @ with_bias(units[index]).square()).flatten() / len(gap))
        if index:
            weight, hidden = layers[index][:, :-1], activation(network.hidden)
            slope, bend = hidden.first(units[index]), on * hidden.second(units[index])
            second = curvature_below(weight, first, second, slope, bend)
            first = slope * (first @ weight)
    return network.collect(torch.cat(parts[::-1]))


def curvature_below(
    weight: Float[Tensor, "K J"],
    first: Float[Tensor, "P K"],
    second: Float[Tensor, "P K"],
    slope: Float[Tensor, "P J"],
    bend: Float[Tensor, "P J"],
) -> Float[Tensor, "P J"]:
    """Compute ∂²E/∂a² of the units below from ∂E/∂a and ∂²E/∂a² above: f'² Σ_l w_li² ∂²E/∂a_l² + f'' ∂E/∂x_i."""
    return slope.square() * (second @ weight.square()) + bend * (first @ weight)
