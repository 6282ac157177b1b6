"""The exercise classic.recursion, "The inverse without inverting": its cases and its named mistakes.

Dimension key: P patterns, O outputs, d weights.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import vector
from course_lib.lessons.common.answers import compare_matrices


def _rows(gradients: Tensor) -> Tensor:
    """One gradient a row: every output of every pattern."""
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


RECURSION = Exercise(
    id="classic.recursion",
    title="The inverse without inverting",
    difficulty=3,
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
    mistakes=(
        Mistake(
            "number of patterns forgotten",
            "The denominator is P + XᵀH⁻¹X. With 1 in place of P you invert αI + ΣXXᵀ, the sum and not the mean.",
            lambda g, a: _direct(g, a, 1.0),
        ),
        Mistake(
            "patterns so far instead of all",
            "The denominator holds P, the number of all patterns, in every step; a running count gives another mean.",
            _recursion_with_running_count,
        ),
        Mistake(
            "alpha forgotten",
            "This is the inverse of 1/P ΣXXᵀ alone, which is singular when there are fewer patterns than weights.",
            lambda g, a: torch.linalg.inv(_rows(g).T @ _rows(g) / len(g)),
            also=(lambda g, a: torch.linalg.pinv(_rows(g).T @ _rows(g) / len(g)),),
        ),
        Mistake(
            "start not inverted",
            "H⁻¹ starts at I/α, the inverse of αI. The smaller α, the larger it starts.",
            _recursion_from,
        ),
        Mistake(
            "start at the identity",
            "The recursion starts at I/α. From I it ends at the inverse for α = 1.",
            lambda g, a: _recursion_from(g, 1.0),
        ),
        Mistake(
            "inverse not carried on",
            "Every step has to use the inverse that the step before left, not the first one.",
            _recursion_of_the_start,
        ),
        Mistake(
            "one gradient only",
            "Only one gradient corrected the matrix, the first or the last. Correct the same matrix again for each.",
            lambda g, a: _recursion_with(
                g[-1:, -1:], a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (len(g) + x @ h @ x)
            ),
            also=(
                lambda g, a: _recursion_with(
                    g[:1, :1], a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (len(g) + x @ h @ x)
                ),
            ),
        ),
        Mistake(
            "gradients counted in place of patterns",
            "H is a sum over outputs and a mean over patterns: P is len(gradients), however many outputs there are.",
            lambda g, a: _direct(g, a, float(g.shape[0] * g.shape[1])),
        ),
        Mistake(
            "outputs added up first",
            "Every output has an outer product of its own; the outer product of their sum holds cross terms as well.",
            lambda g, a: _direct(g.sum(1, keepdim=True), a),
            also=(lambda g, a: _direct(g.mean(1, keepdim=True), a),),
        ),
        Mistake(
            "one output alone",
            "A pattern with several outputs gives several gradients; each of them corrects the inverse.",
            lambda g, a: _direct(g[:, :1], a),
        ),
        Mistake(
            "weights counted in place of patterns",
            "P is the number of patterns, len(gradients); gradients.shape[-1] is the number of weights.",
            lambda g, a: _direct(g, a, float(g.shape[-1])),
        ),
        Mistake(
            "the mean gradient alone",
            "The mean of the outer products is not the outer product of the mean: that has rank 1.",
            lambda g, a: _direct(g.mean(0, keepdim=True), a),
        ),
        Mistake(
            "squares in place of the outer product",
            "moved * moved holds d numbers, or their sum. torch.outer(moved, moved) is the matrix that is subtracted.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -(h @ x).square() / (n + x @ h @ x)),
            also=(
                lambda g, a: _recursion_with(g, a, lambda h, x, n: -((h @ x) @ (h @ x)) / (n + x @ h @ x)),
                lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.diag((h @ x).square()) / (n + x @ h @ x)),
            ),
        ),
        Mistake(
            "one inverse missing in the denominator",
            "The denominator is P + XᵀH⁻¹X. XᵀX leaves the inverse out.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (n + x @ x)),
        ),
        Mistake(
            "alpha times P",
            "αI is added to the mean as it is: the recursion starts at I/α, not at I/(αP).",
            lambda g, a: _direct(g, a * len(g)),
        ),
        Mistake(
            "added instead of subtracted",
            "Every pattern adds curvature to H, so its inverse shrinks: subtract.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: torch.outer(h @ x, h @ x) / (n + x @ h @ x)),
        ),
        Mistake(
            "one factor of the inverse missing",
            "The numerator is H⁻¹X XᵀH⁻¹: the inverse stands on both sides of XXᵀ.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, x) / (n + x @ h @ x)),
            also=(lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(x, x) / (n + x @ h @ x)),),
        ),
        Mistake(
            "divided by P at the end",
            "P belongs into every denominator: P + XᵀH⁻¹X. One factor at the end scales α as well.",
            lambda g, a: _direct(g, a, 1.0) * len(g),
            also=(lambda g, a: _direct(g, a, 1.0) / len(g),),
        ),
        Mistake(
            "P taken out of the sum",
            "1 + XᵀH⁻¹X with a factor 1/P is another number: P + XᵀH⁻¹X, or 1 + XᵀH⁻¹X / P where P is outside.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (n * (1 + x @ h @ x))),
            also=(
                lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (1 + x @ h @ x / n)),
            ),
        ),
        Mistake(
            "H instead of its inverse",
            "This is αI + 1/P ΣXXᵀ itself. The recursion carries the inverse.",
            lambda g, a: a * torch.eye(g.shape[-1], dtype=g.dtype) + _rows(g).T @ _rows(g) / len(g),
        ),
        Mistake(
            "denominator without the curvature",
            "P + XᵀH⁻¹X: the second part says how much of this pattern is known already.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / n),
        ),
    ),
    also_right=(
        Variant("direct inversion", _direct),
        Variant(
            "in place, columns as matrices",
            lambda g, a: _columns(g, a),
        ),
    ),
    hints=(
        "Which u makes u uᵀ = X Xᵀ / P? Put it into the Sherman-Morrison formula, and expand the fraction by P. "
        "Before the first correction A is αI.",
        "Go through the gradients of all outputs of all patterns. moved = inverse @ x is used three times: twice in "
        "the numerator, once in the denominator.",
        "Each one: subtract torch.outer(moved, moved) / (P + x @ moved), with P the number of patterns.",
    ),
)


def _columns(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.diag(torch.full((gradients.shape[-1],), 1 / alpha, dtype=gradients.dtype))
    for row in _rows(gradients):
        x = row[:, None]
        inverse -= (inverse @ x @ x.T @ inverse) / (len(gradients) + x.T @ inverse @ x)
    return inverse
