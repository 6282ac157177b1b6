"""The gates' part of an EM step, Jordan, Jacobs, 1994, https://doi.org/10.1162/neco.1994.6.2.181: one logistic
regression per gate, by Newton's method (iteratively reweighted least squares).

Dimension key: P samples, J inputs including the constant 1 of the bias, N gates, L = N + 1 leaves.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from course_lib.moe.classic.tree import Tree

HALVINGS = 10  # of a Newton step that overshoots; after them the gate keeps its old weights
RIDGE = 1e-9  # relative to a matrix's mean diagonal: keeps it invertible if a node gets hardly any samples


def fit_gates(
    tree: Tree, posteriors: Float[Tensor, "P L"], inputs: Float[Tensor, "P J"], steps: int
) -> Float[Tensor, "N J"]:
    """Maximise Q = Σ (h_left log g + h_right log(1 − g)) of every gate by Newton's method, from the current gates."""
    left, right = _shares(posteriors)
    gates, quality = tree.gates, _quality(tree.gates, left, right, inputs)
    for _ in range(steps):
        g = torch.sigmoid(inputs @ gates.T)
        slope = (left - (left + right) * g).mT @ inputs
        curvature = torch.einsum("pn,pj,pi->nji", (left + right) * g * (1 - g), inputs, inputs)
        size = curvature.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(RIDGE)
        curvature = curvature + RIDGE * size[:, None, None] * torch.eye(inputs.shape[1], dtype=inputs.dtype)
        step = torch.linalg.solve(curvature, slope)
        waiting = torch.ones(len(gates), dtype=torch.bool)
        for halving in range(HALVINGS):
            tried = gates + step / 2**halving
            reached = _quality(tried, left, right, inputs)
            taken = waiting & (reached >= quality)
            gates = torch.where(taken[:, None], tried, gates)
            quality, waiting = torch.where(taken, reached, quality), waiting & ~taken
            if not waiting.any():
                break
    return gates


def _shares(posteriors: Float[Tensor, "P L"]) -> tuple[Float[Tensor, "P N"], Float[Tensor, "P N"]]:
    """Return for every gate the posterior of all leaves to its left, and of all leaves to its right."""
    left, right = [], []
    while posteriors.shape[1] > 1:
        left.insert(0, posteriors[:, 0::2]), right.insert(0, posteriors[:, 1::2])
        posteriors = posteriors[:, 0::2] + posteriors[:, 1::2]
    return torch.cat(left, dim=1), torch.cat(right, dim=1)


def _quality(gates: Tensor, left: Tensor, right: Tensor, inputs: Tensor) -> Float[Tensor, "N"]:
    score = inputs @ gates.T
    return (left * logsigmoid(score) + right * logsigmoid(-score)).sum(dim=0)
