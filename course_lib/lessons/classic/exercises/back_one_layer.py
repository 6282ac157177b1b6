"""The exercise classic.back_one_layer, "Curvature, one layer down"; its named mistakes are in back_one_layer.md.

Dimension key: P patterns, L units of the layer above, I units of the layer below.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import vector
from course_lib.lessons.common.answers import compare_matrices


def _back(weight: Tensor, second: Tensor, to_unit: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    return slope.square() * (second @ weight.square()) + bend * to_unit


def _given(answer: Callable) -> Callable:
    """Call an answer with dE/dx of the units below in place of dE/da of the units above."""
    return lambda weight, first, second, slope, bend: answer(weight, second, first @ weight, slope, bend)


def _library(weight: Tensor, first: Tensor, second: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    from course_lib.pruning.classic.obd import curvature_below

    return curvature_below(weight, first, second, slope, bend)


def _back_cases(generator: torch.Generator) -> list[Case]:
    def layer(n_patterns: int, above: int, below: int) -> tuple:
        activation = torch.tanh(randn(generator, n_patterns, below))
        slope = 1 - activation.square()
        first, second = randn(generator, n_patterns, above), randn(generator, n_patterns, above)
        return randn(generator, above, below), first, second, slope, -2 * activation * slope

    by_hand = (vector(2.0, -1.0)[:, None], vector(1.0, -2.0)[None], vector(3.0, 5.0)[None])
    by_hand += (vector(0.5)[None], vector(-0.25)[None])
    return [
        Case("one unit below two, by hand", by_hand),
        Case("7 patterns, 4 units above, 3 below", layer(7, 4, 3)),
        Case("as many units above as below", layer(5, 5, 5)),
        Case("one pattern", layer(1, 2, 6)),
    ]


BACK_ONE_LAYER = Exercise(
    id="classic.back_one_layer",
    title="Curvature, one layer down",
    difficulty=4,
    minutes=15,
    points=4,
    reference=_given(_back),
    cases=_back_cases,
    picture=lambda case, got, expected: compare_matrices(got, expected, "pattern", "unit below"),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "einsum",
            lambda w, g, s, f1, f2: torch.einsum("pl,li,pi->pi", s, w**2, f1**2) + torch.einsum("pl,li->pi", g, w) * f2,
        ),
        Variant(
            "a loop over the units above",
            _given(
                lambda w, s, t, f1, f2: sum(s[:, [l]] * w[l] ** 2 for l in range(len(w))) * f1 * f1 + f2 * t  # noqa: E741
            ),
        ),
    ),
    hints=(
        "Differentiate ∂E/∂a_i = f'(a_i) ∂E/∂x_i again with respect to a_i. The product has two terms.",
        "∂E/∂x_i = Σ_l w_li ∂E/∂a_l is first @ weight. Its derivative with respect to x_i, without pairs of "
        "different units, contains weight².",
        "The sum of slope² * (second @ weight.square()) and bend * (first @ weight).",
    ),
)
