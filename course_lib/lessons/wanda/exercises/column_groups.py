"""The exercise wanda.column_groups, "Compare within each input": its cases and its named mistakes.

Dimension key: O outputs of a layer.
"""

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


COLUMN_GROUPS = Exercise(
    id="wanda.column_groups",
    title="Compare within each input",
    difficulty=2,
    minutes=5,
    points=2,
    reference=keep_in_columns,
    cases=mask_cases,
    agree=_BY_COLUMN,
    picture=lambda case, got, expected: compare_masks(got, expected),
    mistakes=(
        Mistake(
            "rows instead of columns",
            "Each output row lost the same share; here the group is an input column.",
            keep_in_rows,
        ),
        Mistake(
            "whole layer as one group", "One ranking over the whole layer. Rank within each column.", keep_in_layer
        ),
        Mistake(
            "best ones dropped",
            "The highest scores of each column leave here; they are the ones to keep.",
            lambda score, sparsity: keep_in_columns(-score, sparsity),
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
