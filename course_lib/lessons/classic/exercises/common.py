"""Cases, and the two formulas of OBS, for several exercises of lesson 02.

Dimension key: d weights.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn


def vector(*values: float) -> Tensor:
    return torch.tensor(values)


def random_hessian(generator: torch.Generator, d: int) -> Tensor:
    """A random positive definite matrix with strong correlations."""
    rows = randn(generator, 2 * d, d) + 0.7 * randn(generator, 2 * d, 1)
    return rows.T @ rows / (2 * d)


def saliency_by_obs(weight: Tensor, inverse: Tensor) -> Tensor:
    return 0.5 * weight.square() / inverse.diagonal()


def surface_cases(generator: torch.Generator) -> list[tuple[str, Tensor, Tensor]]:
    by_hand = torch.tensor([[2.0, -1.0], [-1.0, 2.0]]) / 3  # of [[2, 1], [1, 2]]
    return [
        ("two weights by hand", vector(1.0, 3.0), by_hand),
        ("nine weights", randn(generator, 9), torch.linalg.inv(random_hessian(generator, 9))),
        ("no correlations: the special case of OBD", randn(generator, 4), torch.diag(vector(4.0, 1.0, 0.5, 0.1))),
    ]


def update_by_obs(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    return (weight - weight[q] / inverse[q, q] * inverse[:, q]).index_fill(0, torch.tensor(q), 0.0)
