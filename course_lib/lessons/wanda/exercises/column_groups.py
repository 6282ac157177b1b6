"""The exercise wanda.column_groups, "Compare within each input": its cases and its named mistakes.

Dimension key: O outputs of a layer.
"""

import math

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

_BY_COLUMN = agree_on_keep(lambda x, case: x.T)


def _library(score: Tensor, sparsity: float) -> Tensor:
    from course_lib.sparsity.patterns import Unstructured

    return Unstructured(sparsity, per="column").keep(score)


COLUMN_GROUPS = Exercise(
    id="wanda.column_groups",
    title="Compare within each input",
    difficulty=2,
    minutes=5,
    points=2,
    reference=keep_in_columns,
    cases=mask_cases,
    agree=_BY_COLUMN,
    picture=lambda case, got, expected: compare_masks(got, expected, score=case.arguments[0], columns=True),
    library=_library,
    mistakes=(
        Mistake(
            "rows instead of columns",
            "Each output row lost the same share; here the group is an input column.",
            keep_in_rows,
        ),
        Mistake(
            "whole layer as one group",
            "One ranking over the whole layer. Rank within each column.",
            keep_in_layer,
            also=(lambda score, sparsity: score > score.quantile(sparsity),),
        ),
        Mistake(
            "best ones dropped",
            "The highest scores of each column leave here; they are the ones to keep.",
            lambda score, sparsity: keep_in_columns(-score, sparsity),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a weight leaves. In this course True means that it stays: negate it. If all is "
            "right but the case in which none leaves: a slice such as [:-n] is empty for n = 0.",
            lambda score, sparsity: ~keep_in_columns(score, sparsity),
        ),
        Mistake(
            "order instead of ranks",
            "argsort says which entry comes first, second, …; it does not say the rank of each entry. "
            "Apply argsort twice, or scatter at its first indices.",
            lambda score, sparsity: score.argsort(dim=0, stable=True) >= int(score.shape[0] * sparsity),
        ),
        Mistake(
            "threshold with ties",
            "A threshold treats all entries that tie with it alike: all leave, or all stay. Choose an exact count by "
            "index instead.",
            lambda score, sparsity: score > score.sort(dim=0).values[int(score.shape[0] * sparsity) - 1],
            also=(
                lambda score, sparsity: score >= score.sort(dim=0).values[int(score.shape[0] * sparsity)],
                lambda score, sparsity: score > score.quantile(sparsity, dim=0),
                lambda score, sparsity: score >= score.quantile(sparsity, dim=0),
                lambda score, sparsity: score > score.median(dim=0).values,
            ),
        ),
        Mistake(
            "absolute values ranked",
            "Absolute values were taken before ranking. The score says it all: a negative one is lower than zero.",
            lambda score, sparsity: keep_in_columns(score.abs(), sparsity),
        ),
        Mistake(
            "zeros dropped as well",
            "Entries with a score of zero leave here beyond the count. Exactly floor(O × sparsity) of a column leave.",
            lambda score, sparsity: keep_in_columns(score, sparsity) & (score != 0),
        ),
        Mistake(
            "rounded up",
            "When the count does not come out even, round down: floor(O × sparsity) weights of a column leave.",
            lambda score, sparsity: drop_lowest(score.T, math.ceil(score.shape[0] * sparsity)).T,
            also=(lambda score, sparsity: drop_lowest(score.T, round(score.shape[0] * sparsity)).T,),
        ),
        Mistake(
            "the share that stays",
            "As many leave here as should stay: sparsity is the share that leaves.",
            lambda score, sparsity: drop_lowest(score.T, score.shape[0] - int(score.shape[0] * sparsity)).T,
        ),
        Mistake(
            "whole columns",
            "Columns were ranked against each other, and leave or stay whole. Here entries of one column compete.",
            lambda score, sparsity: keep_in_rows(score.sum(0, keepdim=True), sparsity).expand(score.shape),
        ),
        Mistake(
            "count taken from the row",
            "The number that leaves a column is a share of its own length, the number of outputs.",
            lambda score, sparsity: drop_lowest(score.T, min(score.shape[0], int(score.shape[1] * sparsity))).T,
        ),
    ),
    also_right=(
        Variant("ranks along dim 0", lambda s, p: s.argsort(0).argsort(0) >= int(s.shape[0] * p)),
        Variant("contiguous copy", lambda s, p: keep_in_columns(s, p).contiguous()),
    ),
    hints=(
        "It is the last exercise with the two axes exchanged.",
        "Transpose, choose within rows, transpose back. The count is int(O × sparsity).",
    ),
)
