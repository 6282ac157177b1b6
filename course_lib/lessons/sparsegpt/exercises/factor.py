"""The exercise sparsegpt.factor, "One factor for all inverses": its cases and its named mistakes."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, eliminate_input, upper_factor


def _agree_on_factor(got: Any, expected: Tensor, case: Case) -> str | None:
    """Factors agree when both are upper triangular and UᵀU is the same: the signs of whole rows are free."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    if close(got, expected) is None:
        return None
    got, expected = got.double(), expected.double()
    below = got.tril(-1).abs().max().item() if len(got) > 1 else 0.0
    if not below <= 1e-4 * got.abs().max().item():  # NaN fails too
        return f"an entry below the diagonal is {below:.3g}, expected an upper triangular matrix"
    difference = close(got.T @ got, expected.T @ expected)
    return f"UᵀU is not H⁻¹: {difference}" if difference else None


def _library(hessian: Tensor) -> Tensor:
    from course_lib.pruning.layerwise.cholesky import factorise

    return factorise(hessian, damping=0.0).upper


FACTOR = Exercise(
    id="sparsegpt.factor",
    title="One factor for all inverses",
    difficulty=3,
    minutes=12,
    points=3,
    reference=upper_factor,
    library=_library,
    # H = [[2, 1], [1, 2]]: U = [[sqrt(2/3), -1/sqrt(6)], [0, 1/sqrt(2)]]
    cases=lambda generator: [
        Case("2 × 2 by hand", (torch.tensor([[2.0, 1.0], [1.0, 2.0]]),)),
        Case("9 inputs", (damped_gram(generator, 9),)),
        Case("24 inputs", (damped_gram(generator, 24),)),
        Case("inputs that have nothing in common", (torch.diag(torch.tensor([4.0, 1.0, 9.0])),)),
    ],
    agree=_agree_on_factor,
    mistakes=(
        Mistake(
            "factor of H",
            "This factorises H itself. The updates need the inverse: UᵀU = H⁻¹.",
            lambda h: torch.linalg.cholesky(h).T,
            also=(torch.linalg.cholesky,),
        ),
        Mistake(
            "lower triangular",
            "This is L with LLᵀ = H⁻¹. U is its transpose: row j of U then holds the update to the right of column j.",
            lambda h: torch.linalg.cholesky(torch.linalg.inv(h)),
        ),
        Mistake(
            "UUᵀ instead of UᵀU",
            "Inverting the factor of H gives H⁻¹ = UUᵀ. That settles columns from the right; we start at the left.",
            lambda h: torch.linalg.inv(torch.linalg.cholesky(h)).T,
        ),
        Mistake(
            "the inverse itself",
            "This is H⁻¹ itself, or its upper half. Its rows still contain what the columns to the left explain.",
            lambda h: torch.linalg.inv(h).triu(),
            also=(torch.linalg.inv,),
        ),
        Mistake(
            "inverse of the factor of H",
            "UᵀU is H⁻¹, but this U is lower triangular: it would settle columns from the right. Factorise H⁻¹ itself.",
            lambda h: torch.linalg.inv(torch.linalg.cholesky(h)),
        ),
        Mistake(
            "ones on the diagonal",
            "Each row was divided by its diagonal entry. That is the update, but then UᵀU is not H⁻¹; divide later.",
            lambda h: upper_factor(h) / upper_factor(h).diagonal()[:, None],
        ),
        Mistake(
            "a symmetric root",
            "This root is symmetric, not triangular: it would update columns that are settled already, and its upper "
            "half alone does not multiply to H⁻¹.",
            lambda h: _symmetric_root(torch.linalg.inv(h)),
            also=(lambda h: _symmetric_root(torch.linalg.inv(h)).triu(),),
        ),
        Mistake(
            "roots of the entries",
            "The root of a matrix is not the matrix of roots: UᵀU = H⁻¹ is asked of the product.",
            lambda h: torch.linalg.inv(h).abs().sqrt().triu(),
            also=(lambda h: torch.linalg.inv(h).sqrt().triu(), lambda h: torch.linalg.inv(h).abs().sqrt()),
        ),
        Mistake(
            "the diagonal alone",
            "Without the entries beside the diagonal no column sends an update.",
            lambda h: torch.diag(torch.linalg.inv(h).diagonal().sqrt()),
            also=(lambda h: torch.diag(upper_factor(h).diagonal()),),
        ),
        Mistake(
            "U of an LU factorisation",
            "This is U of H⁻¹ = LU, with ones on the diagonal of L: row j is U_jj times too large.",
            lambda h: upper_factor(h) * upper_factor(h).diagonal()[:, None],
        ),
    ),
    also_right=(
        Variant("upper=True", lambda h: torch.linalg.cholesky(torch.linalg.inv(h), upper=True)),
        Variant("without inverting first", lambda h: torch.linalg.inv(torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1))),
        Variant("by elimination, column by column", lambda h: _factor_by_elimination(h)),
        Variant("rows of the other sign", lambda h: -upper_factor(h)),
        Variant("float64", lambda h: upper_factor(h.double())),
    ),
    hints=(
        "torch.linalg.cholesky(A) gives the lower L with LLᵀ = A. Which A, and what is its transpose?",
        "U = Lᵀ for A = H⁻¹: then UᵀU = LLᵀ = H⁻¹.",
    ),
)


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.T


def _factor_by_elimination(hessian: Tensor) -> Tensor:
    upper, inverse = torch.zeros_like(hessian), torch.linalg.inv(hessian)
    for column in range(len(hessian)):
        upper[column, column:] = inverse[0] / inverse[0, 0].sqrt()
        inverse = eliminate_input(inverse, 0)
    return upper
