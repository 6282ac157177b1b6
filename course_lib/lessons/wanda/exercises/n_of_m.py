"""The exercise wanda.n_of_m, "N of M": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant
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
        Case("2:4 on 2 × 8 by hand, scores below zero and zeros that stay", (signs, 2, 4)),
        Case("2:4 on 13 × 48", (torch.randn(13, 48, generator=generator), 2, 4)),
        Case("1:4, a quarter stays", (torch.randn(8, 16, generator=generator), 1, 4)),
        Case("6:8, three quarters stay", (torch.randn(16, 32, generator=generator), 6, 8)),
        Case("all scores zero", (torch.zeros(3, 16), 2, 4)),
    ]


def _library(score: Tensor, n: int, m: int) -> Tensor:
    from course_lib.sparsity.patterns import NofM

    return NofM(n, m).keep(score)


def _same_places(score: Tensor, n: int, m: int, last: bool) -> Tensor:
    """The same n places of every group: the score is not looked at."""
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
    mistakes=(
        Mistake(
            "n dropped instead of kept",
            "n:m says how many of m are kept. For 2:4 both readings agree; for 1:4 they do not.",
            lambda score, n, m: _n_of_m(score, m - n, m),
        ),
        Mistake(
            "best ones dropped",
            "The n lowest of each group stay here. Keep the n highest.",
            lambda score, n, m: _n_of_m(-score, n, m),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True for the m − n that leave. In this course True means that a weight stays.",
            lambda score, n, m: ~_n_of_m(score, n, m),
        ),
        Mistake(
            "order instead of ranks",
            "argsort gives the order of the entries, not the rank of each. Apply it twice, or scatter.",
            lambda score, n, m: (score.unflatten(1, (-1, m)).argsort(dim=2, stable=True) >= m - n).flatten(1),
        ),
        Mistake(
            "groups down the outputs",
            "The groups run down a column. n:m counts along the inputs, the axis that a dot product runs over.",
            lambda score, n, m: _n_of_m_down(score, n, m),
        ),
        Mistake(
            "n of m over more than a group",
            "The row or the layer has the right count, but a group of m may hold more or fewer than n: no hardware can "
            "pack it.",
            lambda score, n, m: drop_lowest(score, score.shape[1] * (m - n) // m),
            also=(
                lambda score, n, m: drop_lowest(score.reshape(1, -1), score.numel() * (m - n) // m).reshape(
                    score.shape
                ),
            ),
        ),
        Mistake(
            "threshold with ties",
            "A threshold treats all entries that tie with it alike: all leave, or all stay. Choose n by index.",
            lambda score, n, m: _compared(score, m, lambda groups: groups > groups.sort(2).values[:, :, [m - n - 1]]),
            also=(
                lambda score, n, m: _compared(score, m, lambda groups: groups >= groups.sort(2).values[:, :, [m - n]]),
                lambda score, n, m: _compared(score, m, lambda groups: groups > groups.sort(2).values[:, :, [m - n]]),
            ),
        ),
        Mistake(
            "absolute values ranked",
            "Absolute values were taken before ranking. The score says it all: a negative one is lower than zero.",
            lambda score, n, m: _n_of_m(score.abs(), n, m),
        ),
        Mistake(
            "zeros dropped as well",
            "Entries with a score of zero leave here beyond the count. Exactly n of every m stay.",
            lambda score, n, m: _n_of_m(score, n, m) & (score != 0),
        ),
        Mistake(
            "always half",
            "This keeps half of every group, or 2 of 4, whatever n and m are.",
            lambda score, n, m: _n_of_m(score, m // 2, m),
            also=(lambda score, n, m: _n_of_m(score, 2, 4),),
        ),
        Mistake(
            "still in groups",
            "The mask has an axis for the groups. Reshape it to that of the score.",
            lambda score, n, m: _n_of_m(score, n, m).unflatten(1, (-1, m)),
            also=(lambda score, n, m: _n_of_m(score, n, m).reshape(-1, m),),
        ),
        Mistake(
            "interleaved groups",
            "A group is m neighbouring columns. Here it is every (I/m)-th column: check the order of the reshape.",
            lambda score, n, m: (
                drop_lowest(score.reshape(score.shape[0], m, -1).transpose(1, 2).reshape(-1, m), m - n)
                .reshape(score.shape[0], -1, m)
                .transpose(1, 2)
                .reshape(score.shape)
            ),
        ),
    ),
    also_right=(
        Variant("ranks in groups", lambda s, n, m: (s.unflatten(1, (-1, m)).argsort(2).argsort(2) >= m - n).flatten(1)),
        Variant(
            "a loop over groups",
            lambda s, n, m: torch.cat([drop_lowest(part, m - n) for part in s.split(m, dim=1)], dim=1),
        ),
    ),
    hints=(
        "Reshape the score so that every group of m neighbours is a row of its own.",
        "score.reshape(O, I // m, m) keeps neighbours together. In each group the m − n lowest leave.",
        "After choosing, reshape the mask back to (O, I).",
    ),
)
