"""The exercise classic.recursion, "The inverse without inverting"; its named mistakes are in recursion.md.

Dimension key: P patterns, O outputs, d weights.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import vector
from course_lib.lessons.common.answers import compare_matrices


def _rows(gradients: Tensor) -> Tensor:
    """One gradient per row, for every output of every pattern."""
    return gradients.flatten(0, -2)


def _recursion(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.eye(gradients.shape[-1], dtype=gradients.dtype) / alpha
    for x in _rows(gradients):
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse


def _direct(gradients: Tensor, alpha: float, n: float | None = None) -> Tensor:
    d = gradients.shape[-1]
    return torch.linalg.inv(
        alpha * torch.eye(d, dtype=gradients.dtype) + _rows(gradients).T @ _rows(gradients) / (n or len(gradients))
    )


def _recursion_from(gradients: Tensor, start: float) -> Tensor:
    inverse = torch.eye(gradients.shape[-1], dtype=gradients.dtype) * start
    for x in _rows(gradients):
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse


def _recursion_with(gradients: Tensor, alpha: float, step) -> Tensor:
    inverse = torch.eye(gradients.shape[-1], dtype=gradients.dtype) / alpha
    for x in _rows(gradients):
        inverse = inverse + step(inverse, x, len(gradients))
    return inverse


def _recursion_with_running_count(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.eye(gradients.shape[-1], dtype=gradients.dtype) / alpha
    for n, x in enumerate(_rows(gradients), 1):
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (n + x @ moved)
    return inverse


def _recursion_of_the_start(gradients: Tensor, alpha: float) -> Tensor:
    steps = (torch.outer(x, x) / alpha**2 / (len(gradients) + x @ x / alpha) for x in _rows(gradients))
    return torch.eye(gradients.shape[-1]) / alpha - sum(steps)


def _library(gradients: Tensor, alpha: float) -> Tensor:
    from course_lib.pruning.classic.obs import inverse_by_recursion

    return inverse_by_recursion(gradients.flatten(0, -2), len(gradients), alpha)


RECURSION = Exercise(
    id="classic.recursion",
    title="The inverse without inverting",
    difficulty=4,
    minutes=15,
    points=4,
    reference=_recursion,
    cases=lambda generator: [
        Case("one pattern, two weights, by hand", (torch.ones(1, 1, 2), 1.0)),
        Case("two patterns, three weights", (vector(1.0, 0.0, 2.0, 0.0, 1.0, -1.0).reshape(2, 1, 3), 0.5)),
        Case("20 patterns, 6 weights", (randn(generator, 20, 1, 6), 0.1)),
        Case("fewer patterns than weights: H alone is singular", (randn(generator, 3, 1, 7), 0.05)),
        Case("5 patterns with 3 outputs each", (randn(generator, 5, 3, 4), 0.2)),
    ],
    picture=lambda case, got, expected: compare_matrices(got, expected, "weight", "weight"),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("direct inversion", _direct),
        Variant(
            "in place, columns as matrices",
            lambda g, a: _columns(g, a),
        ),
    ),
    hints=(
        "Which u makes u uᵀ = X Xᵀ / P? Insert it into the Sherman-Morrison formula, and expand the fraction by P. "
        "Before the first correction, A is αI.",
        "Loop over the gradients of all outputs of all patterns. You need moved = inverse @ x three times: twice in "
        "the numerator, once in the denominator.",
        "For each gradient, subtract torch.outer(moved, moved) / (P + x @ moved), where P is the number of patterns.",
    ),
)


def _columns(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.diag(torch.full((gradients.shape[-1],), 1 / alpha, dtype=gradients.dtype))
    for row in _rows(gradients):
        x = row[:, None]
        inverse -= (inverse @ x @ x.T @ inverse) / (len(gradients) + x.T @ inverse @ x)
    return inverse
