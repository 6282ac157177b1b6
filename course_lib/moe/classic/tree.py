"""Jordan, Jacobs, 1994, "Hierarchical Mixtures of Experts and the EM Algorithm", https://doi.org/10.1162/neco.1994.6.2.181

A binary tree of any depth. Each inner node is a gate, a logistic regression that sends a sample to the left with
probability g(x); each leaf is an expert, a linear map with Gaussian noise:

    P(y | x) = Σ over leaves of (Π of the gates' probabilities on the way down) · N(y; W x, σ²)

Nodes are numbered as in a heap: the children of node n are 2n + 1 and 2n + 2.

Dimension key: P samples, J inputs including the constant 1 of the bias, O outputs, N gates, L = N + 1 leaves.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


@dataclass(frozen=True)
class Tree:
    """The weights of gates and experts, each with its bias last, and the variance of every expert."""

    gates: Float[Tensor, "N J"]
    experts: Float[Tensor, "L O J"]
    variances: Float[Tensor, "L"]

    @property
    def depth(self) -> int:
        return len(self.experts).bit_length() - 1

    def log_prior(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P L"]:
        """Return the log-probability of each leaf given the input, before the target is known."""
        score = inputs @ self.gates.T
        left, right = logsigmoid(score), logsigmoid(-score)
        prior = inputs.new_zeros(len(inputs), 1)
        for level in range(self.depth):
            nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
            prior = torch.stack([prior + left[:, nodes], prior + right[:, nodes]], dim=2).flatten(1)
        return prior

    def outputs(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P L O"]:
        """Return the output of every expert."""
        return torch.einsum("pj,loj->plo", inputs, self.experts)

    def predict(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P O"]:
        """Return the mean of P(y | x)."""
        return torch.einsum("pl,plo->po", self.log_prior(inputs).exp(), self.outputs(inputs))

    def log_joint(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "P L"]:
        """Return the log of P(leaf, target | input)."""
        gap = (targets[:, None] - self.outputs(inputs)).square().sum(dim=2)
        normal = -0.5 * gap / self.variances - 0.5 * targets.shape[1] * (2 * math.pi * self.variances).log()
        return self.log_prior(inputs) + normal

    def log_likelihood(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> float:
        """Return Σ log P(y | x) in nats."""
        return self.log_joint(inputs, targets).logsumexp(dim=1).sum().item()

    def posteriors(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "P L"]:
        """Return h, the probability of every leaf given input and target (the E-step)."""
        return self.log_joint(inputs, targets).softmax(dim=1)


def with_one(inputs: Float[Tensor, "P I"]) -> Float[Tensor, "P J"]:
    """Return the inputs with a column of ones for the biases."""
    return torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)


def relative_error(predicted: Float[Tensor, "P O"], targets: Float[Tensor, "P O"]) -> float:
    """Return the squared error relative to predicting the targets' mean, for which the result is 1."""
    return ((predicted - targets).square().sum() / (targets - targets.mean(dim=0)).square().sum()).item()


def linear_map(inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "O J"]:
    """Fit one linear map to all samples by least squares: a tree of depth 0, the baseline of every tree."""
    return torch.linalg.lstsq(inputs, targets).solution.mT
