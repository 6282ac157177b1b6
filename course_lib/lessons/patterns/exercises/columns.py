"""The exercise patterns.columns, "Remove whole inputs": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.patterns.exercises.common import randn


def _best_columns(weight: Tensor, n_kept: int) -> Tensor:
    return weight.double().norm(dim=0).topk(n_kept).indices.sort().values


def _keep_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return weight[:, columns], columns


def _columns_cases(generator: torch.Generator) -> list[Case]:
    # norms 5.7, 1.4, 5, 3.6: the first cancels when summed, the last and the third trade places by order
    weight = torch.tensor([[4.0, 1.0, 0.0, 3.0], [-4.0, 1.0, 5.0, 2.0]])
    return [
        Case("2 × 4 by hand: the first column cancels when summed", (weight, 2)),
        Case("12 × 20, seven stay", (randn(generator, 12, 20), 7)),
        Case("24 × 9, one stays", (randn(generator, 24, 9), 1)),
        Case("a transposed, non-contiguous weight", (randn(generator, 11, 16).T, 5)),
    ]


def _by_column_sum(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.sum(dim=0).topk(n_kept).indices.sort().values
    return weight[:, columns], columns


def _unsorted_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept).indices
    return weight[:, columns], columns


def _worst_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept, largest=False).indices.sort().values
    return weight[:, columns], columns


def _zeroed_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return torch.zeros_like(weight).index_copy(1, columns, weight[:, columns]), columns


def _keep_rows(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    rows = _best_columns(weight.T, n_kept)
    return weight[rows], rows


COLUMNS = Exercise(
    id="patterns.columns",
    title="Remove whole inputs",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_keep_columns,
    cases=_columns_cases,
    mistakes=(
        Mistake(
            "rows instead of columns",
            "Whole outputs left. A column of an (outputs, inputs) matrix is an input: rank along dim 1.",
            _keep_rows,
        ),
        Mistake(
            "signed sum",
            "In a plain sum, large entries of opposite sign cancel. The norm squares them first.",
            _by_column_sum,
            also=(lambda weight, n_kept: _keep_columns_by(weight, n_kept, weight.sum(dim=0).abs()),),
        ),
        Mistake(
            "sorted by norm",
            "The right columns, in the order of their norm. The inputs arrive in their own order: sort the indices.",
            _unsorted_columns,
        ),
        Mistake(
            "zeros left in place",
            "The matrix still has all its columns, some filled with zeros: as many FLOPs and bytes as before.",
            _zeroed_columns,
        ),
        Mistake(
            "weakest kept",
            "The columns with the smallest norm stayed.",
            _worst_columns,
        ),
    ),
    also_right=(
        Variant("squares, no root", lambda w, n: _keep_columns_by(w, n, w.square().sum(0))),
        Variant(
            "a boolean mask",
            lambda w, n: (
                w[:, w.norm(dim=0) >= w.norm(dim=0).sort(descending=True).values[n - 1]],
                _best_columns(w, n),
            ),
        ),
        Variant("indices as a list", lambda w, n: (w[:, _best_columns(w, n)], _best_columns(w, n).tolist())),
    ),
    hints=(
        "One norm for each input: weight.norm(dim=0).",
        "norms.topk(n_kept).indices are the columns to keep, in order of norm; .sort().values puts them in their own.",
        "weight[:, columns] is the smaller matrix.",
    ),
)


def _keep_columns_by(weight: Tensor, n_kept: int, worth: Tensor) -> tuple[Tensor, Tensor]:
    columns = worth.topk(n_kept).indices.sort().values
    return weight[:, columns], columns
