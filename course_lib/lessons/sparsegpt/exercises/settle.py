"""The exercise sparsegpt.settle, "Settle one column": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, settle_to, upper_factor


def _settle_cases(generator: torch.Generator) -> list[Case]:
    # U_00 = 2, U_01 = -1. A 6 that becomes 0 moves its neighbour by -(6 / 2) · (-1) = 3; a 4 that stays moves nothing;
    # a 5 that is rounded to 4 leaves an error of 1, and so moves its neighbour by 1/2.
    upper = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    by_hand = torch.tensor([[6.0, 1.0], [4.0, 5.0]]), torch.tensor([0.0, 4.0]), upper, 0
    rounded = torch.tensor([[5.0, 1.0]]), torch.tensor([4.0]), upper, 0

    def drawn(rows: int, columns: int, j: int) -> tuple:
        """In the first output the weight becomes zero, in the second it stays, elsewhere either, or it is rounded."""
        weight = randn(generator, rows, columns)
        kind = torch.cat([torch.tensor([0, 1, 2]), torch.randint(0, 3, (rows - 3,), generator=generator)])
        column = weight[:, j]
        values = torch.stack([0 * column, column, (column / 0.75).round() * 0.75 + 0.125])[kind, torch.arange(rows)]
        return weight, values, upper_factor(damped_gram(generator, columns)), j

    return [
        Case("two outputs by hand: 6 becomes 0, 4 stays", by_hand),
        Case("one output by hand: 5 is rounded to 4", rounded),
        Case("6 × 10, the first column", drawn(6, 10, 0)),
        Case("8 × 8, a column in the middle", drawn(8, 8, 3)),
        Case("7 × 6, the last column: nobody is left to make up", drawn(7, 6, 5)),
    ]


def _library(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    from course_lib.lessons.sparsegpt.measure import settled_to

    return settled_to(weight, values, upper, j)


def _with_error(weight: Tensor, values: Tensor, upper: Tensor, j: int, error: Tensor) -> Tensor:
    """Column j gets its values, and some error is spread, whether or not it is the right one."""
    moved = settle_to(weight, weight[:, j] - error, upper, j)
    return _with_column(moved, values, j)


def _with_column(weight: Tensor, values: Tensor, j: int) -> Tensor:
    return torch.cat([weight[:, :j], values[:, None], weight[:, j + 1 :]], dim=1)


SETTLE = Exercise(
    id="sparsegpt.settle",
    title="Settle one column",
    difficulty=3,
    minutes=12,
    points=3,
    reference=settle_to,
    library=_library,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    cases=_settle_cases,
    mistakes=(
        Mistake(
            "nothing moved",
            "Nothing to the right of column j moved. Three slips do that: no update at all; a column that got its "
            "values before its error was taken; column j of U, which is zero below the diagonal, in place of its "
            "row j.",
            lambda w, v, u, j: _with_column(w, v, j),
        ),
        Mistake(
            "the whole weight sent",
            "Weights that stay, or are only rounded, sent all of themselves to the right. What has to be made up for "
            "is what the column lost: its weight less its new value.",
            lambda w, v, u, j: _with_error(w, v, u, j, w[:, j]),
        ),
        Mistake(
            "only zeros make an error",
            "Weights that became zero sent their error, and those that were rounded sent none. Whatever the new value, "
            "the error is the weight less that value.",
            lambda w, v, u, j: _with_error(w, v, u, j, w[:, j] * (v == 0)),
        ),
        Mistake(
            "the new value sent",
            "The new values were spread to the right. The error is what is missing: the weight less its new value.",
            lambda w, v, u, j: _with_error(w, v, u, j, v),
        ),
        Mistake(
            "row of the whole inverse",
            "This row of H⁻¹ = UᵀU still knows the settled columns. What is left has another inverse: use row j of U.",
            lambda w, v, u, j: torch.cat([w[:, :j], _settle_by_inverse(w, v, u, j)[:, j:]], dim=1),
        ),
        Mistake(
            "column of U",
            "Column j of U moved the columns to the left, which are settled. The update is row j, to the right.",
            lambda w, v, u, j: _settle_along(w, v, u[:, j] / u[j, j], j),
        ),
        Mistake(
            "one column off",
            "Each column received what belongs to its left neighbour: weight[:, j + 1:] goes with upper[j, j + 1:].",
            lambda w, v, u, j: _settle_along(w, v, torch.cat([0 * u[j, : j + 1], u[j, j:-1]]) / u[j, j], j),
        ),
        Mistake(
            "the next column only",
            "Only column j + 1 moved. All columns to the right make up for the error.",
            lambda w, v, u, j: _settle_along(w, v, u[j].where(torch.arange(len(u)) <= j + 1, 0) / u[j, j], j),
        ),
        Mistake(
            "settled columns moved",
            "Columns left of j changed too. They are settled: update only those to the right.",
            lambda w, v, u, j: _settle_by_inverse(w, v, u, j),
        ),
        Mistake(
            "error not divided by U_jj",
            "The first row of the inverse is divided by its first entry, so that the error of column j itself becomes "
            "zero: divide by U_jj.",
            lambda w, v, u, j: settle_to(w, v, u, j, float(u[j, j])),
            also=(lambda w, v, u, j: settle_to(w, v, u, j, float(u[j, j] ** 2)),),
        ),
        Mistake(
            "divided twice",
            "[H⁻¹]_jj of what is left is U_jj², but the row of H⁻¹ is U_jj times that of U: one division remains.",
            lambda w, v, u, j: settle_to(w, v, u, j, 1 / float(u[j, j])),
        ),
        Mistake(
            "wrong sign",
            "The update goes against the error: subtract it. Check by hand that the layer error falls.",
            lambda w, v, u, j: settle_to(w, v, u, j, -1.0),
        ),
        Mistake(
            "the whole column emptied",
            "Column j is zero in every output. It must hold the values that were given.",
            lambda w, v, u, j: _with_column(settle_to(w, v, u, j), torch.zeros_like(v), j),
        ),
        Mistake(
            "column not set",
            "The others make up for the error, but column j is as it was: it must hold the values that were given.",
            lambda w, v, u, j: _with_column(settle_to(w, v, u, j), w[:, j], j),
        ),
        Mistake(
            "the error added to the column",
            "Column j was changed twice: it has its new values, and the update of the others on top.",
            lambda w, v, u, j: _with_column(settle_to(w, v, u, j), 2 * v - w[:, j], j),
        ),
    ),
    also_right=(
        Variant("in place, from column j on", lambda w, v, u, j: _settle_in_place(w, v, u, j)),
        Variant("row by row", lambda w, v, u, j: _settle_by_row(w, v, u, j)),
        Variant("float64", lambda w, v, u, j: settle_to(w.double(), v.double(), u.double(), j)),
    ),
    hints=(
        "What did each weight of column j lose? Where it becomes zero, all of itself. Where it stays, nothing.",
        "The update is that multiple of row j of U which would take exactly this loss away in column j itself.",
        "With error = weight[:, j] − values: weight[:, j + 1:] −= outer(error / upper[j, j], upper[j, j + 1:]).",
    ),
)


def _settle_by_inverse(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    inverse, error = upper.T @ upper, weight[:, j] - values
    return _with_column(weight - torch.outer(error / inverse[j, j], inverse[j]), values, j)


def _settle_along(weight: Tensor, values: Tensor, row: Tensor, j: int) -> Tensor:
    return _with_column(weight - torch.outer(weight[:, j] - values, row), values, j)


def _settle_in_place(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    error = (weight[:, j] - values) / upper[j, j]
    weight[:, j:] -= error[:, None] * upper[j, j:]  # column j itself: w − (w − v) · U_jj / U_jj
    return weight


def _settle_by_row(weight: Tensor, values: Tensor, upper: Tensor, j: int) -> Tensor:
    rows = [
        torch.cat([row[:j], value[None], row[j + 1 :] - (row[j] - value) * upper[j, j + 1 :] / upper[j, j]])
        for row, value in zip(weight, values, strict=True)
    ]
    return torch.stack(rows)
