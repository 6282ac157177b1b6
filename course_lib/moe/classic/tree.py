"""Jordan, Jacobs, 1994, "Hierarchical Mixtures of Experts and the EM Algorithm", https://doi.org/10.1162/neco.1994.6.2.181

A binary tree of any depth. Each inner node is a gate, a logistic regression that sends a sample to the left with
probability g(x); each leaf is an expert, a linear map with Gaussian noise:

    P(y | x) = Σ over leaves of (Π of the gates' probabilities on the way down) · N(y; W x, σ²)

Nodes are numbered as in a heap: the two below node n are 2n + 1 and 2n + 2.

Dimension key: P samples, J inputs and the one that is always 1, O outputs, N gates, L = N + 1 leaves.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


@dataclass(frozen=True)
class Tree:
    """Weights of the gates and experts, each with its bias last, and every expert's variance."""

    gates: Float[Tensor, "N J"]
    experts: Float[Tensor, "L O J"]
    variances: Float[Tensor, "L"]

    @property
    def depth(self) -> int:
        return len(self.experts).bit_length() - 1

    def log_prior(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P L"]:
        """The logarithm of each leaf's probability before the target is seen."""
        score = inputs @ self.gates.T
        left, right = logsigmoid(score), logsigmoid(-score)
        prior = inputs.new_zeros(len(inputs), 1)
        for level in range(self.depth):
            nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
            prior = torch.stack([prior + left[:, nodes], prior + right[:, nodes]], dim=2).flatten(1)
        return prior

    def outputs(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P L O"]:
        """The output of every expert."""
        return torch.einsum("pj,loj->plo", inputs, self.experts)

    def predict(self, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "P O"]:
        """The mean of P(y | x)."""
        return torch.einsum("pl,plo->po", self.log_prior(inputs).exp(), self.outputs(inputs))

    def log_joint(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "P L"]:
        """log of (leaf, target) given the input."""
        gap = (targets[:, None] - self.outputs(inputs)).square().sum(dim=2)
        normal = -0.5 * gap / self.variances - 0.5 * targets.shape[1] * (2 * math.pi * self.variances).log()
        return self.log_prior(inputs) + normal

    def log_likelihood(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> float:
        """Σ log P(y | x), in nats."""
        return self.log_joint(inputs, targets).logsumexp(dim=1).sum().item()

    def posteriors(self, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "P L"]:
        """h: the probability of every leaf once the target is seen (the E-step)."""
        return self.log_joint(inputs, targets).softmax(dim=1)


def with_one(inputs: Float[Tensor, "P I"]) -> Float[Tensor, "P J"]:
    """The inputs and a column of ones, which the biases weigh."""
    return torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)


def relative_error(predicted: Float[Tensor, "P O"], targets: Float[Tensor, "P O"]) -> float:
    """Squared error as a fraction of the error of the targets' mean: predicting that mean gives 1."""
    return ((predicted - targets).square().sum() / (targets - targets.mean(dim=0)).square().sum()).item()


def linear_map(inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]) -> Float[Tensor, "O J"]:
    """One linear map for all samples, by least squares: a tree of depth 0, which every tree has to beat."""
    return torch.linalg.lstsq(inputs, targets).solution.mT
