"""The exercise wanda.keep_rows, "Compare within each output": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

import math

import torch
from torch import Tensor

from course_lib.checking.exercise import Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks
from course_lib.lessons.wanda.exercises.common import (
    agree_on_keep,
    drop_lowest,
    keep_in_columns,
    keep_in_layer,
    keep_in_rows,
    mask_cases,
)

_BY_ROW = agree_on_keep(lambda x, case: x)


def _above_threshold(score: Tensor, sparsity: float) -> Tensor:
    return score > score.sort(dim=1).values[:, [int(score.shape[1] * sparsity) - 1]]


def _at_threshold(score: Tensor, sparsity: float) -> Tensor:
    return score >= score.sort(dim=1).values[:, [int(score.shape[1] * sparsity)]]


def _library(score: Tensor, sparsity: float) -> Tensor:
    from course_lib.sparsity.patterns import Unstructured

    return Unstructured(sparsity, per="row").keep(score)


KEEP_ROWS = Exercise(
    id="wanda.keep_rows",
    title="Compare within each output",
    difficulty=2,
    minutes=8,
    points=3,
    reference=keep_in_rows,
    cases=mask_cases,
    agree=_BY_ROW,
    picture=lambda case, got, expected: compare_masks(got, expected, score=case.arguments[0]),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "topk of what stays",
            lambda s, p: torch.zeros_like(s, dtype=torch.bool).scatter(
                1, s.topk(s.shape[1] - int(s.shape[1] * p), dim=1).indices, True
            ),
        ),
        Variant("rank of each entry", lambda s, p: s.argsort(1).argsort(1) >= int(s.shape[1] * p)),
        Variant("float mask of zeros and ones", lambda s, p: keep_in_rows(s, p).float()),
    ),
    hints=(
        "How many weights do you remove from a row? The same number from every row: int(I × sparsity).",
        "Find the positions of the lowest scores of each row, for example with topk or argsort.",
        "Positions are not a mask yet. Tensor.scatter writes one value at given positions of each row.",
    ),
)
