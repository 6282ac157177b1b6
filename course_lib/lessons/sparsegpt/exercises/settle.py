"""The exercise sparsegpt.settle, "Freeze one column": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, freeze_to, upper_factor


def _freeze_cases(generator: torch.Generator) -> list[Case]:
    # U_00 = 2, U_01 = -1. A 6 that becomes 0 moves its neighbour by -(6 / 2) · (-1) = 3; a 4 that is kept moves
    # nothing; a 5 that is rounded to 4 has an error of 1 and moves its neighbour by 1/2.
    upper = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    by_hand = torch.tensor([[6.0, 1.0], [4.0, 5.0]]), torch.tensor([0.0, 4.0]), upper, 0
    rounded = torch.tensor([[5.0, 1.0]]), torch.tensor([4.0]), upper, 0

    def random_case(rows: int, columns: int, j: int) -> tuple:
        """The first output loses its weight, the second keeps it; elsewhere it is pruned, kept or rounded."""
        weight = randn(generator, rows, columns)
        kind = torch.cat([torch.tensor([0, 1, 2]), torch.randint(0, 3, (rows - 3,), generator=generator)])
        column = weight[:, j]
        values = torch.stack([0 * column, column, (column / 0.75).round() * 0.75 + 0.125])[kind, torch.arange(rows)]
        return weight, values, upper_factor(damped_gram(generator, columns)), j

    return [
        Case("two outputs by hand: 6 becomes 0, 4 is kept", by_hand),
        Case("one output by hand: 5 is rounded to 4", rounded),
        Case("6 × 10, the first column", random_case(6, 10, 0)),
        Case("8 × 8, a column in the middle", random_case(8, 8, 3)),
        Case("7 × 6, the last column: no column is left to update", random_case(7, 6, 5)),
    ]


def _library(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    from course_lib.lessons.sparsegpt.plots import freeze_column

    return freeze_column(weight, values, upper, j)


def _with_error(weight: Tensor, values: Tensor, upper: Tensor, j: int, error: Tensor) -> Tensor:
    """Column j gets its values, and the given error is propagated, right or wrong."""
    moved = freeze_to(weight, weight[:, j] - error, upper, j)
    return _with_column(moved, values, j)


def _with_column(weight: Tensor, values: Tensor, j: int) -> Tensor:
    return torch.cat([weight[:, :j], values[:, None], weight[:, j + 1 :]], dim=1)


SETTLE = Exercise(
    id="sparsegpt.settle",
    title="Freeze one column",
    difficulty=3,
    minutes=12,
    points=3,
    reference=freeze_to,
    library=_library,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    cases=_freeze_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in place, from column j on", lambda w, v, u, j: _freeze_in_place(w, v, u, j)),
        Variant("row by row", lambda w, v, u, j: _freeze_by_row(w, v, u, j)),
        Variant("float64", lambda w, v, u, j: freeze_to(w.double(), v.double(), u.double(), j)),
    ),
    hints=(
        "How much did each weight of column j lose? All of its value where it becomes zero, nothing where it is kept.",
        "The update is the multiple of row j of U that would subtract exactly this loss in column j itself.",
        "With error = weight[:, j] − values: weight[:, j + 1:] −= outer(error / upper[j, j], upper[j, j + 1:]).",
    ),
)


def _freeze_by_inverse(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    inverse, error = upper.T @ upper, weight[:, j] - values
    return _with_column(weight - torch.outer(error / inverse[j, j], inverse[j]), values, j)


def _freeze_by_wrong_product(weight: Tensor, values: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    """Update the columns after j with row j of UUᵀ."""
    row = (upper @ upper.T)[j]
    return _freeze_along(weight, values, scale * row.where(torch.arange(len(row)) > j, 0) / row[j], j)


def _freeze_along(weight: Tensor, values: Tensor, row: Tensor, j: int) -> Tensor:
    return _with_column(weight - torch.outer(weight[:, j] - values, row), values, j)


def _freeze_in_place(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    error = (weight[:, j] - values) / upper[j, j]
    weight[:, j:] -= error[:, None] * upper[j, j:]  # column j itself: w − (w − v) · U_jj / U_jj
    return weight


def _freeze_by_row(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    rows = [
        torch.cat([row[:j], value[None], row[j + 1 :] - (row[j] - value) * upper[j, j + 1 :] / upper[j, j]])
        for row, value in zip(weight, values, strict=True)
    ]
    return torch.stack(rows)
