"""The exercise sparsegpt.factor, "One factor for all inverses": its cases and its named mistakes."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, eliminate_input, upper_factor


def _agree_on_factor(got: Any, expected: Tensor, case: Case) -> str | None:
    """Factors agree when both are upper triangular and UᵀU is the same: the signs of whole rows may differ."""
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
        Case("uncorrelated inputs", (torch.diag(torch.tensor([4.0, 1.0, 9.0])),)),
    ],
    agree=_agree_on_factor,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("upper=True", lambda h: torch.linalg.cholesky(torch.linalg.inv(h), upper=True)),
        Variant("without inverting first", lambda h: torch.linalg.inv(torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1))),
        Variant("by elimination, column by column", lambda h: _factor_by_elimination(h)),
        Variant("rows with the opposite sign", lambda h: -upper_factor(h)),
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
