"""Random inputs for the cases of lesson 03, and the steps of SparseGPT, which several exercises use."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn


def correlated_inputs(generator: torch.Generator, n_tokens: int, n_inputs: int) -> Tensor:
    """Correlated inputs of different sizes, like those of a language model."""
    mixed = randn(generator, n_tokens, n_inputs) @ (0.5 * randn(generator, n_inputs, n_inputs) / n_inputs**0.5)
    return (mixed + randn(generator, n_tokens, n_inputs)) * (0.3 + torch.rand(n_inputs, generator=generator))


def damped_gram(generator: torch.Generator, n_inputs: int) -> Tensor:
    x = correlated_inputs(generator, 3 * n_inputs, n_inputs)
    return x.T @ x + 0.01 * x.square().sum(0).mean() * torch.eye(n_inputs)


def without_inputs(matrix: Tensor, removed: Tensor | list) -> Tensor:
    rest = [i for i in range(len(matrix)) if i not in removed]
    return matrix[rest][:, rest]


def eliminate_input(inverse: Tensor, q: int | Tensor) -> Tensor:
    return without_inputs(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q], [q])


def upper_factor(hessian: Tensor) -> Tensor:
    return torch.linalg.cholesky(torch.linalg.inv(hessian)).T


def freeze_to(weight: Tensor, values: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    frozen = weight.clone()
    error = weight[:, j] - values
    frozen[:, j] = values
    frozen[:, j + 1 :] -= scale * torch.outer(error / upper[j, j], upper[j, j + 1 :])
    return frozen


def freeze_by_mask(weight: Tensor, keep: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    return freeze_to(weight, weight[:, j] * keep, upper, j, scale)


def prune_lowest(score: Tensor, n: int) -> Tensor:
    keep = torch.ones(score.numel(), dtype=torch.bool)
    keep[score.flatten().sort(stable=True).indices[:n]] = False
    return keep.reshape(score.shape)


def n_pruned(weight: Tensor, sparsity: float) -> int:
    return int(weight.numel() * sparsity + 1e-6)


def mask_of_block(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return prune_lowest((weight / diagonal).square(), n_pruned(weight, sparsity))
