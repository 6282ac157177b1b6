"""The exercise patterns.columns, "Remove whole inputs": its cases and its named mistakes."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.short import short
from course_lib.lessons.common.answers import compare_chosen
from course_lib.lessons.patterns.exercises.common import even_and_spiky


def _agree_on_columns(got: Any, expected: tuple, case: Case) -> str | None:
    """Columns agree if their norms do: of two equal norms either may be kept."""
    problem = close(got, expected)
    if problem is None or not isinstance(got, tuple) or len(got) != 2:
        return problem
    (smaller, no_matrix), (columns, no_columns) = map(tensor_like, got, expected)
    if no_matrix or no_columns:
        return f"the matrix: {no_matrix}" if no_matrix else f"the indices: {no_columns}"
    weight = case.arguments[0]
    if columns.tolist() != sorted({int(c) for c in columns.tolist() if 0 <= c < weight.shape[1]}):
        return f"the indices are {short(columns)}, expected {short(expected[1])}"
    if complaint := close(smaller, weight[:, columns.long()]):
        return f"the matrix does not contain the columns of its indices: {complaint}"
    mine, right = (weight[:, chosen.long()].double().norm(dim=0).sort().values for chosen in (columns, expected[1]))
    return problem if close(mine, right) else None


def _best_columns(weight: Tensor, n_kept: int) -> Tensor:
    return weight.double().norm(dim=0).topk(n_kept).indices.sort().values


def _keep_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return weight[:, columns], columns


def _columns_cases(generator: torch.Generator) -> list[Case]:
    # norms 6.7, 6.4, 6, 6.9; sums 3, 5, 6, 12; of absolute values 9, 11, 6, 12; largest entries 6, 4, 6, 4
    weight = torch.tensor([[0.0, -3.0, 0.0, 4.0], [6.0, 4.0, 0.0, 4.0], [-3.0, 4.0, 6.0, 4.0]])
    tied = torch.tensor([[3.0, 0.0, 4.0, 1.0, -5.0], [4.0, 5.0, 3.0, 2.0, 0.0]])  # four columns of norm 5
    empty = torch.zeros(3, 8).index_copy(1, torch.tensor([1, 6]), torch.tensor([[2.0, 1.0], [-1.0, 0.0], [0.0, 3.0]]))
    return [
        Case("3 × 4 by hand: norms 6.7, 6.4, 6 and 6.9, two kept", (weight, 2)),
        Case("12 × 20, even columns and spiky ones, seven kept", (even_and_spiky(generator, 12, 20), 7)),
        Case("24 × 9, even columns and spiky ones, four kept", (even_and_spiky(generator, 24, 9), 4)),
        Case("a square weight, transposed and not contiguous", (randn(generator, 16, 16).T, 5)),
        Case("four equal norms: two of them are kept", (tied, 2)),
        Case("columns of zeros: five columns are kept all the same", (empty, 5)),
    ]


def _keep_columns_by(weight: Tensor, n_kept: int, score: Tensor) -> tuple[Tensor, Tensor]:
    columns = score.topk(n_kept).indices.sort().values
    return weight[:, columns], columns


def _unsorted_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept).indices
    return weight[:, columns], columns


def _sorted_indices_alone(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept).indices
    return weight[:, columns], columns.sort().values


def _zeroed_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return torch.zeros_like(weight).index_copy(1, columns, weight[:, columns]), columns


def _keep_rows(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    rows = _best_columns(weight.T, n_kept)
    return weight[rows], rows


def _by_mask(weight: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    return weight[:, keep], keep.nonzero().flatten()


def _from_smallest(weight: Tensor, n_kept: int) -> Tensor:
    """The n-th largest norm."""
    return weight.norm(dim=0).sort(descending=True).values[n_kept - 1]


def _largest_mask(weight: Tensor, n_kept: int) -> Tensor:
    keep = torch.zeros(weight.shape[1], dtype=torch.bool)
    return keep.index_fill(0, weight.norm(dim=0).topk(n_kept).indices, True)


def _library(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    from course_lib.sparsity.patterns import Columns

    keep = Columns(1 - n_kept / weight.shape[1]).keep(weight.double().square())[0]
    return weight[:, keep], keep.nonzero().flatten()


COLUMNS = Exercise(
    id="patterns.columns",
    title="Remove whole inputs",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_keep_columns,
    cases=_columns_cases,
    agree=_agree_on_columns,
    picture=lambda case, got, expected: compare_chosen(
        case.arguments[0].norm(dim=0),
        got[1],
        expected[1] if _agree_on_columns(got, expected, case) else got[1],
        "input (column)",
        "norm",
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("squares, no root", lambda w, n: _keep_columns_by(w, n, w.square().sum(0))),
        Variant("a boolean mask", lambda w, n: _by_mask(w, w.norm(dim=0).argsort().argsort() >= w.shape[1] - n)),
        Variant("indices as a list", lambda w, n: (w[:, _best_columns(w, n)], _best_columns(w, n).tolist())),
    ),
    hints=(
        "One norm per input: weight.norm(dim=0).",
        "norms.topk(n_kept).indices are the columns to keep; .sort().values restores their original order.",
        "weight[:, columns] is the smaller matrix.",
    ),
)
