"""The exercise sparsegpt.prune, "SparseGPT": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import (
    damped_gram,
    freeze_by_mask,
    mask_of_block,
    n_pruned,
    prune_lowest,
    upper_factor,
)


def _prune(
    weight: Tensor,
    upper: Tensor,
    sparsity: float,
    block_size: int,
    lazy: bool = True,
    ahead: Tensor | None = None,
    update: bool = True,
    choose: Callable[[Tensor, Tensor, float], Tensor] = mask_of_block,
    undivided: bool = False,
    times: int = 1,
    sign: int = 1,
    inside: bool = True,
    row: Callable[[Tensor, int], Tensor] = lambda upper, j: upper[j],
    first_diagonal: bool = False,
    last_error: bool = False,
) -> Tensor:
    """SparseGPT as in the paper; the settings after the block size introduce the mistakes."""
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        block = slice(start, end)
        diagonal = upper.diagonal()[: end - start] if first_diagonal else upper.diagonal()[block]
        keep = choose(weight[:, block], diagonal, sparsity) if ahead is None else ahead[:, block]
        errors = torch.zeros_like(weight[:, block])
        for j in range(start, end):
            errors[:, j - start] = weight[:, j] * ~keep[:, j - start] / upper[j, j]
            weight[:, j] *= keep[:, j - start]
            if update and inside:
                weight[:, j + 1 : end] -= sign * torch.outer(errors[:, j - start], row(upper, j)[j + 1 : end])
        if lazy and update:
            propagated = errors * upper.diagonal()[block] if undivided else errors
            propagated = torch.cat([0 * propagated[:, :-1], propagated[:, -1:]], dim=1) if last_error else propagated
            weight[:, end:] -= sign * times * propagated @ upper[block, end:]
    return weight


def _prune_cases(generator: torch.Generator) -> list[Case]:
    def random_case(rows: int, columns: int, sparsity: float, block_size: int) -> tuple:
        return randn(generator, rows, columns), upper_factor(damped_gram(generator, columns)), sparsity, block_size

    # One row, U = [[1, -1/2], [0, 1]]: the score of 1 is lower than that of 3, and 3 becomes 3 + 1/2.
    upper = torch.tensor([[1.0, -0.5], [0.0, 1.0]])
    return [
        Case("one output, two inputs, by hand: (0, 3.5)", (torch.tensor([[1.0, 3.0]]), upper, 0.5, 2)),
        Case("8 × 16, one block", random_case(8, 16, 0.5, 16)),
        Case("8 × 24, three blocks, a quarter pruned", random_case(8, 24, 0.25, 8)),
        Case("10 × 18, blocks of 4: the last is smaller", random_case(10, 18, 0.5, 4)),
        Case("7 × 10, blocks of 4, 35 % pruned: 9.8, so 9, and 4.9, so 4", random_case(7, 10, 0.35, 4)),
    ]


def _mask_of_all(weight: Tensor, upper: Tensor, sparsity: float) -> Tensor:
    return mask_of_block(weight, upper.diagonal(), sparsity)


def _masks_ahead(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    parts = zip(weight.split(block_size, 1), upper.diagonal().split(block_size), strict=True)
    return torch.cat([mask_of_block(part, diagonal, sparsity) for part, diagonal in parts], dim=1)


def _library(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    from course_lib.pruning.layerwise.cholesky import Factor
    from course_lib.pruning.layerwise.solver import solve
    from course_lib.sparsity.patterns import Unstructured

    factor = Factor(upper, dead=torch.zeros(len(upper), dtype=torch.bool), damping=0.0)
    pattern = Unstructured(sparsity, per="column", size=block_size)  # a block of columns is one comparison group
    return solve(weight, factor, pattern, block_size).weight


PRUNE = Exercise(
    id="sparsegpt.prune",
    title="SparseGPT",
    difficulty=5,
    minutes=25,
    points=5,
    reference=_prune,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    library=_library,
    cases=_prune_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("every column updates all columns to its right", lambda w, u, s, b: _prune_eagerly(w, u, s, b)),
        Variant("float64", lambda w, u, s, b: _prune(w.double(), u.double(), s, b)),
    ),
    hints=(
        "For each block: choose its mask as in the last exercise, then freeze its columns from left to right.",
        "Within the block, column j updates only columns j + 1 … end. Store each error / U_jj as a column of `errors`.",
        "After the block: weight[:, end:] −= errors @ upper[start:end, end:].",
    ),
)


def _mask_by_row(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return torch.cat([mask_of_block(row[None], diagonal, sparsity) for row in weight])


def _best_pruned(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return prune_lowest(-(weight / diagonal).square(), n_pruned(weight, sparsity))


def _mask_rounded_up(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return prune_lowest((weight / diagonal).square(), math.ceil(weight.numel() * sparsity - 1e-6))


def _without_last(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    whole = weight.shape[1] - weight.shape[1] % block_size
    frozen = _prune(weight[:, :whole], upper[:whole, :whole], sparsity, block_size)
    errors = (weight[:, :whole] - frozen) @ torch.linalg.inv(upper[:whole, :whole])
    return torch.cat([frozen, weight[:, whole:] - errors @ upper[:whole, whole:]], dim=1)


def _prune_eagerly(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        keep = mask_of_block(weight[:, start:end], upper.diagonal()[start:end], sparsity)
        for j in range(start, end):
            weight = freeze_by_mask(weight, keep[:, j - start], upper, j)
    return weight


def _prune_by_wrong_product(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    """Every column updates all columns to its right with its row of UUᵀ."""
    product = upper @ upper.T
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        keep = mask_of_block(weight[:, start:end], upper.diagonal()[start:end], sparsity)
        for j in range(start, end):
            weight = freeze_by_mask(weight, keep[:, j - start], product, j)
    return weight


def _never_zeroed(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        keep = mask_of_block(weight[:, start:end], upper.diagonal()[start:end], sparsity)
        for j in range(start, end):
            error = weight[:, j] * ~keep[:, j - start] / upper[j, j]
            weight[:, j + 1 :] -= torch.outer(error, upper[j, j + 1 :])
    return weight


def _all_at_once(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    keep = _masks_ahead(weight, upper, sparsity, block_size)
    errors = weight * ~keep / upper.diagonal()
    return (weight - errors @ upper.triu(1)) * keep
