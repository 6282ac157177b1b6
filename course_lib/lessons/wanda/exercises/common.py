"""Shared by several exercises of lesson 04: cases, and functions that choose and compare masks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case


def drop_lowest(score: Tensor, n: int) -> Tensor:
    """Return the mask that removes the n lowest scores of each row."""
    order = score.sort(dim=1, stable=True).indices[:, :n]
    return torch.ones_like(score, dtype=torch.bool).scatter(1, order, False)


def agree_on_keep(groups: Callable[[Tensor, Case], Tensor]) -> Callable[[Any, Tensor, Case], str | None]:
    """Masks agree when every group keeps the same number of weights with the same scores; ties are free.

    Args:
        groups: brings a matrix into the shape (comparison groups, entries of a group).
    """

    def agree(got: Any, expected: Tensor, case: Case) -> str | None:
        got, problem = tensor_like(got, expected)
        if problem:
            return problem
        if not ((got == 0) | (got == 1)).all():
            return "the mask has values other than True and False: return a mask of the kept weights, not the weights"
        score, mine, right = (groups(x, case) for x in (case.arguments[0], got.bool(), expected.bool()))
        count = mine.sum(1), right.sum(1)
        kept = [score.double().masked_fill(~keep, torch.inf).sort(dim=1).values for keep in (mine, right)]
        wrong = ((count[0] != count[1]) | (kept[0] != kept[1]).any(1)).nonzero().flatten().tolist()
        if not wrong:
            return None
        first = wrong[0]
        worth = [score[first][keep[first]].sum() for keep in (mine, right)]
        return (
            f"group {first} keeps {int(count[0][first])} entries with a total score of {worth[0]:.4g}, expected "
            f"{int(count[1][first])} with {worth[1]:.4g}; {len(wrong)} of {len(score)} groups differ"
        )

    return agree


def mask_cases(generator: torch.Generator) -> list[Case]:
    score = torch.tensor([[20.0, 3.0, 2.0, 10.0], [5.0, 2.0, 3.0, 40.0], [2.0, 6.0, 5.0, 2.5]])
    # One weight is removed from each row and column: the lowest, which is negative, or one of several zeros.
    signs = torch.tensor([[0.0, -3.0, 2.0, 0.0], [0.0, 0.0, 5.0, 0.0], [-1.0, 0.0, -6.0, 4.0], [0.0, 1.0, 0.0, -2.0]])

    def drawn(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator)

    ties = torch.randint(-1, 2, (5, 7), generator=generator).float()
    return [
        Case("a 3 × 4 score worked by hand, half is removed", (score, 0.5)),
        Case("4 × 4 by hand, scores below zero and zeros that are kept", (signs, 0.25)),
        Case("31 × 50, 30 % is removed", (drawn(31, 50), 0.3)),
        Case("8 × 8, rows of very different size", (drawn(8, 8) * torch.logspace(-3, 3, 8)[:, None], 0.5)),
        Case("all scores zero", (torch.zeros(4, 10), 0.5)),
        Case("5 × 7, many ties, and a count that is not a whole number", (ties, 0.5)),
        Case("0.8 of four: nothing is removed", (drawn(4, 4), 0.2)),
    ]


def keep_in_layer(score: Tensor, sparsity: float) -> Tensor:
    return drop_lowest(score.reshape(1, -1), int(score.numel() * sparsity)).reshape(score.shape)


def keep_in_rows(score: Tensor, sparsity: float) -> Tensor:
    return drop_lowest(score, int(score.shape[1] * sparsity))


def keep_in_columns(score: Tensor, sparsity: float) -> Tensor:
    return drop_lowest(score.T, int(score.shape[0] * sparsity)).T
