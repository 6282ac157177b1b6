"""The exercise wanda.column_groups, "Compare within each input": its cases and its named mistakes.

Dimension key: O outputs of a layer.
"""

import math

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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("ranks along dim 0", lambda s, p: s.argsort(0).argsort(0) >= int(s.shape[0] * p)),
        Variant("contiguous copy", lambda s, p: keep_in_columns(s, p).contiguous()),
    ),
    hints=(
        "This is the previous exercise with the two axes exchanged.",
        "You can reuse your previous function on the transposed score. From which axis does it then take the count?",
    ),
)
