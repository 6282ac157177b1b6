"""Gradients of what a small network says, and of its error, for all patterns at once by hand-written backpropagation.

Dimension key: P patterns, I inputs, O outputs, d free weights; in a layer J inputs (1 more for the bias), K outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.activations import activation
from course_lib.pruning.classic.network import Network, Patterns


def with_bias(said: Float[Tensor, "P J"]) -> Float[Tensor, "P J1"]:
    """What a layer reads: the units below, and the unit that always says 1."""
    return torch.cat([said, said.new_ones(len(said), 1)], dim=1)


def output_gradients(
    network: Network, theta: Float[Tensor, "d"], inputs: Float[Tensor, "P I"]
) -> Float[Tensor, "P O d"]:
    """X of OBS: the gradient of every OUTPUT (not of the error) with respect to the weights, for every pattern."""
    said, layers = network.activities(theta, inputs), network.layers(theta)
    slope = activation(network.output).first(said[-1])
    back = torch.diag_embed(slope)  # (P, O, K): how output o moves with the input of unit k; here k is an output
    parts = []
    for index in range(len(layers) - 1, -1, -1):
        parts.append((back[..., None] * with_bias(said[index])[:, None, None, :]).flatten(2))
        if index:
            back = (back @ layers[index][:, :-1]) * activation(network.hidden).first(said[index])[:, None, :]
    return network.collect(torch.cat(parts[::-1], dim=2))


def residuals(network: Network, theta: Float[Tensor, "d"], patterns: Patterns) -> Float[Tensor, "P O"]:
    """o − t, for every pattern and output."""
    return network(theta, patterns.inputs) - patterns.targets


def error_gradient(network: Network, theta: Float[Tensor, "d"], patterns: Patterns) -> Float[Tensor, "d"]:
    """∂E/∂w of the error 1/(2P) Σ ‖t − o‖². At a trained minimum it vanishes."""
    slopes = output_gradients(network, theta, patterns.inputs)
    return torch.einsum("po,pod->d", residuals(network, theta, patterns), slopes) / len(slopes)
