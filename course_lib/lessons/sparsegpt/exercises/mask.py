"""The exercise sparsegpt.mask, "The mask of a block": its cases and its named mistakes.

Dimension key: O outputs of a layer, B columns of a block.
"""

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks
from course_lib.lessons.sparsegpt.exercises.common import mask_of_block, n_pruned, prune_lowest


def _mask_cases(generator: torch.Generator) -> list[Case]:
    # scores 4, 4, 1 and 36, 1, 0.25: four of six are pruned (0.25, 1, 1 and one of the tied fours)
    by_hand = (torch.tensor([[2.0, 4.0, 0.5], [6.0, 2.0, 0.25]]), torch.tensor([1.0, 2.0, 0.5]), 2 / 3)
    large_and_small = torch.cat([0.1 * randn(generator, 5, 12), 3 * randn(generator, 5, 12)])

    def spread() -> Tensor:
        return 0.2 + 2 * torch.rand(12, generator=generator)

    zeros = torch.tensor([[0.0, 0.0, 3.0], [0.0, -2.0, 1.0]]), torch.ones(3), 0.34
    return [
        Case("2 × 3 by hand, two scores tie", by_hand),
        Case("2 × 3 by hand, three weights are zero already and two of them are pruned", zeros),
        Case("12 × 12, 36 % pruned: 51.84, so 51", (randn(generator, 12, 12), spread(), 0.36)),
        Case("half of the outputs have small weights", (large_and_small, spread(), 0.5)),
        Case("all scores equal", (torch.ones(4, 6), torch.ones(6), 0.5)),
    ]


def _agree_on_block(got: Any, expected: Tensor, case: Case) -> str | None:
    """Masks agree if they keep the same number of weights with the same scores; ties may be broken either way."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    if not ((got == 0) | (got == 1)).all():
        return "the mask contains values other than True and False: return the mask, not the weights"
    if got.sum() != expected.sum():
        return f"{int(got.sum())} of {got.numel()} are kept, expected {int(expected.sum())}"
    weight, diagonal, _ = case.arguments
    score = (weight.double() / diagonal.double()).abs()
    mine, right = (score[keep.bool()].sort().values for keep in (got, expected))
    if torch.isclose(mine, right, rtol=1e-5, atol=0).all():  # float32 may rank near ties either way
        return None
    return (
        f"the kept scores add up to {mine.square().sum():.4g}, expected {right.square().sum():.4g}: "
        "other weights should be pruned"
    )


def _library(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    from course_lib.sparsity.patterns import Unstructured

    return Unstructured(sparsity, per="layer").keep((weight / diagonal).square())


MASK = Exercise(
    id="sparsegpt.mask",
    title="The mask of a block",
    difficulty=3,
    minutes=8,
    points=2,
    reference=mask_of_block,
    cases=_mask_cases,
    agree=_agree_on_block,
    picture=lambda case, got, expected: compare_masks(
        got, expected, marked=_agree_on_block(got, expected, case) is not None
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("topk of the absolute values", lambda w, d, s: _mask_by_topk(w, d, s)),
        Variant("zeros and ones", lambda w, d, s: mask_of_block(w, d, s).float()),
    ),
    hints=(
        "The score of a weight is w² / U_jj²; the diagonal has one entry per column of the block.",
        "Flatten the scores, find the int(O · B · s) lowest with topk(largest=False), and set those to False.",
    ),
)


def _mask_by_topk(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    lowest = (weight.abs() / diagonal).flatten().topk(n_pruned(weight, sparsity), largest=False).indices
    return torch.ones(weight.numel(), dtype=torch.bool).index_fill(0, lowest, False).reshape(weight.shape)
