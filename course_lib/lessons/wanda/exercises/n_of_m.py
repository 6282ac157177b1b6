"""The exercise wanda.n_of_m, "N of M": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks
from course_lib.lessons.wanda.exercises.common import agree_on_keep, drop_lowest

_BY_M_INPUTS = agree_on_keep(lambda x, case: x.reshape(-1, case.arguments[2]))


def _n_of_m(score: Tensor, n: int, m: int) -> Tensor:
    rows, columns = score.shape
    return drop_lowest(score.reshape(-1, m), m - n).reshape(rows, columns)


def _compared(score: Tensor, m: int, keep: Callable[[Tensor], Tensor]) -> Tensor:
    return keep(score.unflatten(1, (-1, m))).flatten(1)


def _n_of_m_down(score: Tensor, n: int, m: int) -> Tensor:
    padded = torch.nn.functional.pad(score, (0, 0, 0, -score.shape[0] % m), value=-math.inf)
    return _n_of_m(padded.T.contiguous(), n, m).T[: score.shape[0]]


def _n_of_m_cases(generator: torch.Generator) -> list[Case]:
    score = torch.tensor([[20.0, 3.0, 2.0, 10.0, 1.0, 2.0, 3.0, 4.0], [5.0, 2.0, 3.0, 40.0, 9.0, 8.0, 1.0, 7.0]])
    signs = torch.tensor([[0.0, -3.0, 2.0, 0.0, 0.0, 0.0, 0.0, 5.0], [-1.0, -2.0, -3.0, -4.0, 3.0, 3.0, 3.0, -2.0]])
    return [
        Case("2:4 on a 2 × 8 score worked by hand", (score, 2, 4)),
        Case("2:4 on 2 × 8 by hand, scores below zero and zeros that are kept", (signs, 2, 4)),
        Case("2:4 on 13 × 48", (torch.randn(13, 48, generator=generator), 2, 4)),
        Case("1:4, a quarter is kept", (torch.randn(8, 16, generator=generator), 1, 4)),
        Case("6:8, three quarters are kept", (torch.randn(16, 32, generator=generator), 6, 8)),
        Case("all scores zero", (torch.zeros(3, 16), 2, 4)),
    ]


def _library(score: Tensor, n: int, m: int) -> Tensor:
    from course_lib.sparsity.patterns import NofM

    return NofM(n, m).keep(score)


def _same_places(score: Tensor, n: int, m: int, last: bool) -> Tensor:
    """The same n positions of every group, whatever the score."""
    place = torch.arange(score.shape[1]) % m
    return (place >= m - n if last else place < n).expand(score.shape)


N_OF_M = Exercise(
    id="wanda.n_of_m",
    title="N of M",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_n_of_m,
    cases=_n_of_m_cases,
    agree=_BY_M_INPUTS,
    picture=lambda case, got, expected: compare_masks(got, expected, case.arguments[2], score=case.arguments[0]),
    library=_library,
    trivial=(
        Trivial("keeping the first n of every m", lambda score, n, m: _same_places(score, n, m, last=False)),
        Trivial("keeping the last n of every m", lambda score, n, m: _same_places(score, n, m, last=True)),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("ranks in groups", lambda s, n, m: (s.unflatten(1, (-1, m)).argsort(2).argsort(2) >= m - n).flatten(1)),
        Variant(
            "a loop over groups",
            lambda s, n, m: torch.cat([drop_lowest(part, m - n) for part in s.split(m, dim=1)], dim=1),
        ),
    ),
    hints=(
        "You can already choose within rows. How can every group of m neighbours become one row?",
        "A reshape whose last axis has length m keeps neighbours together. How many weights of each group are removed?",
        "The mask has the shape of the groups now, and the weight has another one.",
    ),
)
