"""The exercise classic.back_one_layer, "Curvature, one layer down": its cases and its named mistakes.

Dimension key: P patterns, L units of the layer above, I units of the layer below.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import vector
from course_lib.lessons.common.answers import compare_matrices


def _back(weight: Tensor, second: Tensor, to_unit: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    return slope.square() * (second @ weight.square()) + bend * to_unit


def _given(answer: Callable) -> Callable:
    """An answer that is given dE/dx of the lower units in place of dE/da of the upper ones."""
    return lambda weight, first, second, slope, bend: answer(weight, second, first @ weight, slope, bend)


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
    mistakes=(
        Mistake(
            "gradient with respect to a, not x",
            "∂E/∂x_i = Σ_l w_li ∂E/∂a_l, without f'(a_i): the slope comes in when you go on to ∂E/∂a_i. In the second "
            "derivative f'' stands where f' was.",
            lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * f1 * (g @ w),
        ),
        Mistake(
            "gradient through squared weights",
            "The first derivative comes down through w, as in ordinary backpropagation; only second ones take w².",
            lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * (g @ w.square()),
        ),
        Mistake(
            "gradient without the weights",
            "∂E/∂x_i = Σ_l w_li ∂E/∂a_l: each unit above counts by its weight, first @ weight.",
            lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * g.sum(1, keepdim=True),
            also=(lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * g.mean(1, keepdim=True),),
        ),
        Mistake(
            "second derivatives in place of first",
            "f'' is multiplied by the gradient, ∂E/∂x_i = Σ_l w_li ∂E/∂a_l, and not by the curvature.",
            lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * (s @ w),
            also=(lambda w, g, s, f1, f2: f1.square() * (s @ w.square()) + f2 * (s @ w.square()),),
        ),
        # From here on written with t, the gradient dE/dx of the lower units, which an answer has to find by itself.
        Mistake(
            "weights not squared",
            "Gradients travel down through w, second derivatives through w².",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w) + f2 * t),
        ),
        Mistake(
            "squared after the sum",
            "Σ_l w_li² ∂²E/∂a_l² squares each weight, not the sum over the units above.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w).square() + f2 * t),
        ),
        Mistake(
            "slope not squared",
            "f' enters twice, once for each derivative: f'(a)².",
            _given(lambda w, s, t, f1, f2: f1 * (s @ w.square()) + f2 * t),
        ),
        Mistake(
            "slope forgotten",
            "What comes from above passes through the unit itself: multiply it by its slope squared, f'(a)².",
            _given(lambda w, s, t, f1, f2: s @ w.square() + f2 * t),
        ),
        Mistake(
            "slope over both terms",
            "f'² belongs to the curvature from above alone; f'' ∂E/∂x stands beside it.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square() + f2 * t)),
        ),
        Mistake(
            "weights' size in place of their square",
            "Second derivatives travel down through w², not |w|.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.abs()) + f2 * t),
        ),
        Mistake(
            "curvature squared",
            "∂²E/∂a_l² is a second derivative already; only the weight and the slope are squared.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s.square() @ w.square()) + f2 * t),
        ),
        Mistake(
            "bend squared",
            "f'' enters once, times ∂E/∂x. The slope f' is the one that is squared.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) + f2.square() * t),
            also=(_given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) + (f2 * t).square()),),
        ),
        Mistake(
            "terms subtracted",
            "The two parts are added; the bend has a sign of its own.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) - f2 * t),
        ),
        Mistake(
            "curvature from above alone",
            "This is the sum over the units above. The unit's own slope and bend are left out.",
            _given(lambda w, s, t, f1, f2: s @ w.square()),
        ),
        Mistake(
            "slope not squared, bend forgotten",
            "Two things are missing. The slope enters twice, once for each derivative: f'(a)². And f'' ∂E/∂x, the bend "
            "of the unit itself, is added.",
            _given(lambda w, s, t, f1, f2: f1 * (s @ w.square())),
        ),
        Mistake(
            "patterns added up",
            "Each pattern has a curvature of its own: keep the rows apart, (P, I).",
            _given(lambda w, s, t, f1, f2: (f1.square() * (s @ w.square()) + f2 * t).sum(0)),
            also=(
                _given(lambda w, s, t, f1, f2: (f1.square() * (s @ w.square()) + f2 * t).mean(0)),
                _given(
                    lambda w, s, t, f1, f2: (f1.square() * (s @ w.square()) + f2 * t).sum(0, keepdim=True).expand_as(t)
                ),
            ),
        ),
        Mistake(
            "slope in place of the gradient",
            "f'' is multiplied by ∂E/∂x, not by f'.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) + f2 * f1),
        ),
        Mistake(
            "terms multiplied",
            "The two parts are added: the curvature from above, and the bend of the unit.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) * (f2 * t)),
        ),
        Mistake(
            "bend forgotten",
            "Without f'' ∂E/∂x this is the Levenberg-Marquardt form. The exercise asks for the full one.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square())),
        ),
        Mistake(
            "bend without the gradient",
            "f'' is multiplied by ∂E/∂x, the first derivative with respect to the unit's output.",
            _given(lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) + f2),
        ),
        Mistake(
            "slope and bend exchanged",
            "f'² belongs to the curvature from above, f'' to the gradient.",
            _given(lambda w, s, t, f1, f2: f2.square() * (s @ w.square()) + f1 * t),
        ),
    ),
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
        "Differentiate ∂E/∂a_i = f'(a_i) ∂E/∂x_i once more by a_i. It is a product, so there are two terms.",
        "∂E/∂x_i = Σ_l w_li ∂E/∂a_l is first @ weight; its derivative by x_i, without pairs of units, has weight².",
        "slope² * (second @ weight.square()), and beside it bend * (first @ weight).",
    ),
)
