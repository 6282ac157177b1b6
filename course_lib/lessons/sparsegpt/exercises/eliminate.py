"""The exercise sparsegpt.eliminate, "The inverse of what is left": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, eliminate_input, without_input


def _eliminate_cases(generator: torch.Generator) -> list[Case]:
    # H = [[2, 1], [1, 2]]: its inverse is [[2, -1], [-1, 2]] / 3, and without the first input H is [2], so [1/2]
    by_hand = torch.tensor([[2.0, -1.0], [-1.0, 2.0]]) / 3
    return [
        Case("2 × 2 by hand: what is left is 1/2", (by_hand, 0)),
        Case("8 inputs, the first leaves", (torch.linalg.inv(damped_gram(generator, 8)), 0)),
        Case("8 inputs, one in the middle leaves", (torch.linalg.inv(damped_gram(generator, 8)), 4)),
        Case("5 inputs, the last leaves", (torch.linalg.inv(damped_gram(generator, 5)), 4)),
    ]


ELIMINATE = Exercise(
    id="sparsegpt.eliminate",
    title="The inverse of what is left",
    difficulty=3,
    minutes=10,
    points=3,
    reference=eliminate_input,
    cases=_eliminate_cases,
    mistakes=(
        Mistake(
            "row and column struck out",
            "The inverse of a part is not a part of the inverse. Before striking out, take away what input q explains.",
            without_input,
        ),
        Mistake(
            "added instead of taken away",
            "The sign is wrong: without input q less is known of the others, and the diagonal must shrink here.",
            lambda inverse, q: without_input(inverse + torch.outer(inverse[:, q], inverse[q]) / inverse[q, q], q),
        ),
        Mistake(
            "not divided by the pivot",
            "Gaussian elimination divides by the pivot [H⁻¹]_qq; otherwise column q does not become zero.",
            lambda inverse, q: without_input(inverse - torch.outer(inverse[:, q], inverse[q]), q),
            also=(
                lambda inverse, q: without_input(inverse - torch.outer(inverse[:, q], inverse[q]) * inverse[q, q], q),
            ),
        ),
        Mistake(
            "divided by the whole diagonal",
            "Column k was divided by [H⁻¹]_kk. One pivot serves all: [H⁻¹]_qq.",
            lambda inverse, q: without_input(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse.diagonal(), q),
            also=(
                lambda inverse, q: without_input(
                    inverse - torch.outer(inverse[:, q], inverse[q]) / inverse.diagonal()[:, None], q
                ),
            ),
        ),
        Mistake(
            "no outer product",
            "Row and column q were multiplied entry by entry. Entry (i, k) loses [H⁻¹]_iq [H⁻¹]_qk: an outer product.",
            lambda inverse, q: without_input(inverse - inverse[:, q] * inverse[q] / inverse[q, q], q),
        ),
        Mistake(
            "the first input instead of q",
            "It is always the first input that leaves here. Take row, column and pivot q.",
            lambda inverse, q: eliminate_input(inverse, 0),
        ),
        Mistake(
            "inverted once too often",
            "This is H without row and column q, or the inverse of a part of H⁻¹. You have H⁻¹; asked for is the "
            "inverse of a part of H.",
            lambda inverse, q: without_input(torch.linalg.inv(inverse), q),
            also=(lambda inverse, q: torch.linalg.inv(without_input(inverse, q)),),
        ),
        Mistake(
            "zeros left in",
            "Row and column q are zero now, but still there. Return the matrix without them.",
            lambda inverse, q: inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q],
            also=(lambda inverse, q: _with_column(inverse, q), lambda inverse, q: _with_column(inverse, q).T),
        ),
        Mistake(
            "another power of the pivot",
            "The pivot stands under the outer product once: not squared, and not under a root.",
            lambda inverse, q: without_input(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q] ** 2, q),
            also=(
                lambda inverse, q: without_input(
                    inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q] ** 0.5, q
                ),
            ),
        ),
    ),
    also_right=(
        Variant("from scratch", lambda inverse, q: torch.linalg.inv(without_input(torch.linalg.inv(inverse), q))),
        Variant(
            "strike out first",
            lambda inverse, q: (
                without_input(inverse, q)
                - torch.outer(
                    torch.cat([inverse[:q, q], inverse[q + 1 :, q]]), torch.cat([inverse[q, :q], inverse[q, q + 1 :]])
                )
                / inverse[q, q]
            ),
        ),
    ),
    hints=(
        "One step of Gaussian elimination: take a multiple of row q from every row, such that column q becomes zero.",
        "inverse − outer(inverse[:, q], inverse[q]) / inverse[q, q]; then leave out row and column q.",
    ),
)


def _with_column(inverse: Tensor, q: int) -> Tensor:
    zeroed = inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q]
    return torch.cat([zeroed[:q], zeroed[q + 1 :]])
