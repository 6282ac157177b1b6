"""What several exercises of lesson 03 share: their cases, and the steps that make up SparseGPT."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn


def correlated_inputs(generator: torch.Generator, n_tokens: int, n_inputs: int) -> Tensor:
    """Inputs that go together in part and are of different size, as those of a language model."""
    mixed = randn(generator, n_tokens, n_inputs) @ (0.5 * randn(generator, n_inputs, n_inputs) / n_inputs**0.5)
    return (mixed + randn(generator, n_tokens, n_inputs)) * (0.3 + torch.rand(n_inputs, generator=generator))


def damped_gram(generator: torch.Generator, n_inputs: int) -> Tensor:
    x = correlated_inputs(generator, 3 * n_inputs, n_inputs)
    return x.T @ x + 0.01 * x.square().sum(0).mean() * torch.eye(n_inputs)


def without_inputs(matrix: Tensor, gone: Tensor | list) -> Tensor:
    rest = [i for i in range(len(matrix)) if i not in gone]
    return matrix[rest][:, rest]


def eliminate_input(inverse: Tensor, q: int | Tensor) -> Tensor:
    return without_inputs(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q], [q])


def upper_factor(hessian: Tensor) -> Tensor:
    return torch.linalg.cholesky(torch.linalg.inv(hessian)).T


def settle_to(weight: Tensor, values: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    settled = weight.clone()
    error = weight[:, j] - values
    settled[:, j] = values
    settled[:, j + 1 :] -= scale * torch.outer(error / upper[j, j], upper[j, j + 1 :])
    return settled


def settle_column(weight: Tensor, keep: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    return settle_to(weight, weight[:, j] * keep, upper, j, scale)


def lowest_leave(score: Tensor, n: int) -> Tensor:
    keep = torch.ones(score.numel(), dtype=torch.bool)
    keep[score.flatten().sort(stable=True).indices[:n]] = False
    return keep.reshape(score.shape)


def n_leaving(weight: Tensor, sparsity: float) -> int:
    return int(weight.numel() * sparsity + 1e-6)


def mask_of_block(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return lowest_leave((weight / diagonal).square(), n_leaving(weight, sparsity))
