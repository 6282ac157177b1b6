"""The exercise wanda.keep_rows, "Compare within each output": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

import math

import torch
from torch import Tensor

from course_lib.checking.exercise import Exercise, Mistake, Variant
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
    mistakes=(
        Mistake(
            "whole layer as one group",
            "One ranking over the whole layer may empty rows of small scores. Wanda ranks within each output row.",
            keep_in_layer,
            also=(
                lambda score, sparsity: score > score.flatten().sort().values[int(score.numel() * sparsity) - 1],
                lambda score, sparsity: score >= score.flatten().sort().values[int(score.numel() * sparsity)],
                lambda score, sparsity: score > score.quantile(sparsity),
            ),
        ),
        Mistake(
            "columns instead of rows",
            "Each input column lost the same share. The comparison group is an output: a row of the weight.",
            keep_in_columns,
        ),
        Mistake(
            "best ones dropped",
            "The highest scores leave here. Keep them: a high score means that the weight matters.",
            lambda score, sparsity: keep_in_rows(-score, sparsity),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a weight leaves. In this course True means that it stays: negate it. If all is "
            "right but the case in which none leaves: a slice such as [:, :-n] is empty for n = 0.",
            lambda score, sparsity: ~keep_in_rows(score, sparsity),
        ),
        Mistake(
            "order instead of ranks",
            "argsort says which entry comes first, second, …; it does not say the rank of each entry. "
            "Apply argsort twice, or scatter at its first indices.",
            lambda score, sparsity: score.argsort(dim=1, stable=True) >= int(score.shape[1] * sparsity),
        ),
        Mistake(
            "threshold with ties",
            "A threshold treats all entries that tie with it alike: all leave, or all stay. Choose an exact count by "
            "index instead.",
            _above_threshold,
            also=(
                _at_threshold,
                lambda score, sparsity: score > score.quantile(sparsity, dim=1, keepdim=True),
                lambda score, sparsity: score >= score.quantile(sparsity, dim=1, keepdim=True),
                lambda score, sparsity: score > score.median(dim=1, keepdim=True).values,
            ),
        ),
        Mistake(
            "threshold that is a share",
            "The scores were compared with their mean, with a fraction of the largest, or with the sparsity itself. "
            "How many pass then depends on their size; exactly floor(I × sparsity) of a row are pruned.",
            lambda score, sparsity: score > score.mean(dim=1, keepdim=True),
            also=(
                lambda score, sparsity: score > sparsity * score.amax(dim=1, keepdim=True),
                lambda score, sparsity: score > sparsity,
            ),
        ),
        Mistake(
            "absolute values ranked",
            "Absolute values were taken before ranking. The score says it all: a negative one is lower than zero.",
            lambda score, sparsity: keep_in_rows(score.abs(), sparsity),
        ),
        Mistake(
            "zeros dropped as well",
            "Entries with a score of zero leave here beyond the count. Exactly floor(I × sparsity) of a row leave.",
            lambda score, sparsity: keep_in_rows(score, sparsity) & (score != 0),
        ),
        Mistake(
            "the share that stays",
            "As many leave here as should stay: sparsity is the share that leaves.",
            lambda score, sparsity: drop_lowest(score, score.shape[1] - int(score.shape[1] * sparsity)),
        ),
        Mistake(
            "count taken from the column",
            "The number that leaves a row is a share of its own length, the number of inputs.",
            lambda score, sparsity: drop_lowest(score, min(score.shape[1], int(score.shape[0] * sparsity))),
        ),
        Mistake(
            "rounded up",
            "When the count does not come out even, round down: floor(I × sparsity) weights of a row leave.",
            lambda score, sparsity: drop_lowest(score, math.ceil(score.shape[1] * sparsity)),
        ),
    ),
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
        "How many weights of a row leave? The same number in every row: int(I × sparsity).",
        "score.topk(k, dim=1, largest=False).indices are the columns that leave.",
        "Start from a mask of True and scatter False: keep.scatter_(1, indices, False).",
    ),
)
