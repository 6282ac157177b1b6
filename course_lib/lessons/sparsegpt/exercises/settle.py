"""The exercise sparsegpt.settle, "Settle one column": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, randn, settle_column, upper_factor


def _settle_cases(generator: torch.Generator) -> list[Case]:
    # U_00 = 2, U_01 = -1: a deleted weight of 6 moves its neighbour by -(6 / 2) * (-1) = 3
    by_hand = (
        torch.tensor([[6.0, 1.0], [4.0, 5.0]]),
        torch.tensor([False, True]),
        torch.tensor([[2.0, -1.0], [0.0, 3.0]]),
    )

    def drawn(rows: int, columns: int, j: int) -> tuple:
        keep = torch.rand(rows, generator=generator) < 0.5
        keep[:2] = torch.tensor([True, False])
        return randn(generator, rows, columns), keep, upper_factor(damped_gram(generator, columns)), j

    return [
        Case("two outputs, two inputs, by hand", (*by_hand, 0)),
        Case("6 × 10, the first column", drawn(6, 10, 0)),
        Case("5 × 8, a column in the middle", drawn(5, 8, 3)),
        Case("7 × 6, the last column: nobody is left to make up", drawn(7, 6, 5)),
    ]


SETTLE = Exercise(
    id="sparsegpt.settle",
    title="Settle one column",
    difficulty=3,
    minutes=12,
    points=3,
    reference=settle_column,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    cases=_settle_cases,
    mistakes=(
        Mistake(
            "nothing moved",
            "Nothing to the right of column j moved. Three slips do that: no update at all; a weight that is zeroed "
            "before its error is taken; column j of U, which is zero below the diagonal, in place of its row j.",
            lambda w, keep, u, j: torch.cat([w[:, :j], (w[:, j] * keep)[:, None], w[:, j + 1 :]], dim=1),
        ),
        Mistake(
            "row of the whole inverse",
            "This row of H⁻¹ = UᵀU still knows the settled columns. What is left has another inverse: use row j of U.",
            lambda w, keep, u, j: torch.cat([w[:, :j], _settle_by_inverse(w, keep, u, j)[:, j:]], dim=1),
        ),
        Mistake(
            "column of U",
            "Column j of U moved the columns to the left, which are settled. The update is row j, to the right.",
            lambda w, keep, u, j: _settle_along(w, keep, u[:, j] / u[j, j], j),
        ),
        Mistake(
            "one column off",
            "Each column received what belongs to its left neighbour: weight[:, j + 1:] goes with upper[j, j + 1:].",
            lambda w, keep, u, j: _settle_along(w, keep, torch.cat([0 * u[j, : j + 1], u[j, j:-1]]) / u[j, j], j),
        ),
        Mistake(
            "the next column only",
            "Only column j + 1 moved. All columns to the right make up for the error.",
            lambda w, keep, u, j: _settle_along(w, keep, u[j].where(torch.arange(len(u)) <= j + 1, 0) / u[j, j], j),
        ),
        Mistake(
            "settled columns moved",
            "Columns left of j changed too. They are settled: update only those to the right.",
            lambda w, keep, u, j: _settle_by_inverse(w, keep, u, j),
        ),
        Mistake(
            "error not divided by U_jj",
            "Divide the error by U_jj before it is spread along row j of U.",
            lambda w, keep, u, j: settle_column(w, keep, u, j, float(u[j, j])),
            also=(lambda w, keep, u, j: settle_column(w, keep, u, j, float(u[j, j] ** 2)),),
        ),
        Mistake(
            "divided twice",
            "[H⁻¹]_jj of what is left is U_jj², but the row of H⁻¹ is U_jj times that of U: one division remains.",
            lambda w, keep, u, j: settle_column(w, keep, u, j, 1 / float(u[j, j])),
        ),
        Mistake(
            "wrong sign",
            "The update goes against the error: subtract it. Check by hand that the layer error falls.",
            lambda w, keep, u, j: settle_column(w, keep, u, j, -1.0),
        ),
        Mistake(
            "kept weights spread too",
            "Outputs that keep their weight in column j have no error to spread. The error is w · (1 − keep).",
            lambda w, keep, u, j: torch.cat(
                [
                    w[:, :j],
                    (w[:, j] * keep)[:, None],
                    w[:, j + 1 :] - torch.outer(w[:, j] / u[j, j], u[j, j + 1 :]),
                ],
                dim=1,
            ),
        ),
        Mistake(
            "the wrong ones leave",
            "keep is True where the weight stays.",
            lambda w, keep, u, j: settle_column(w, ~keep, u, j),
        ),
        Mistake(
            "errors of those that stay",
            "The right weights leave, but those that stay send the error: it is w where the weight leaves, else 0.",
            lambda w, keep, u, j: torch.cat(
                [settle_column(w, keep, u, j)[:, : j + 1], settle_column(w, ~keep, u, j)[:, j + 1 :]], dim=1
            ),
        ),
        Mistake(
            "the whole column emptied",
            "Column j is zero in every output. Where keep is True the weight stays.",
            lambda w, keep, u, j: settle_column(w, keep, u, j).index_fill(1, torch.tensor([j]), 0),
        ),
        Mistake(
            "column not emptied",
            "The others make up for the weight, but it is still there: column j must become w · keep.",
            lambda w, keep, u, j: torch.cat([w[:, : j + 1], settle_column(w, keep, u, j)[:, j + 1 :]], dim=1),
        ),
    ),
    also_right=(
        Variant("in place, from column j on", lambda w, keep, u, j: _settle_in_place(w, keep, u, j)),
        Variant("row by row", lambda w, keep, u, j: _settle_by_row(w, keep, u, j)),
        Variant("float64", lambda w, keep, u, j: settle_column(w.double(), keep, u.double(), j)),
    ),
    hints=(
        "error = weight[:, j] where it leaves, else 0. What column j becomes is easy; now those to its right.",
        "weight[:, j + 1:] −= outer(error / upper[j, j], upper[j, j + 1:]).",
    ),
)


def _settle_by_inverse(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    inverse, error = upper.T @ upper, weight[:, j] * ~keep
    settled = weight - torch.outer(error / inverse[j, j], inverse[j])
    settled[:, j] = weight[:, j] * keep
    return settled


def _settle_along(weight: Tensor, keep: Tensor, row: Tensor, j: int) -> Tensor:
    settled = weight - torch.outer(weight[:, j] * ~keep, row)
    settled[:, j] = weight[:, j] * keep
    return settled


def _settle_in_place(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    error = (weight[:, j] - weight[:, j] * keep) / upper[j, j]
    weight[:, j:] -= error[:, None] * upper[j, j:]  # column j itself: w − error · U_jj / U_jj
    return weight


def _settle_by_row(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    rows = [
        row
        if stays
        else torch.cat([row[:j], row.new_zeros(1), row[j + 1 :] - row[j] * upper[j, j + 1 :] / upper[j, j]])
        for row, stays in zip(weight, keep, strict=True)
    ]
    return torch.stack(rows)
