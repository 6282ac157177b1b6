"""The exercise classic.taylor, "What a change costs": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import randn, random_hessian, vector


def _only(weight: Tensor, q: int) -> Tensor:
    """Zero everywhere but at q."""
    return torch.zeros_like(weight).index_put((torch.tensor(q),), weight[q])


def _taylor_cases(generator: torch.Generator) -> list[Case]:
    hessian = torch.tensor([[4.0, 1.0], [1.0, 2.0]])
    d = 6
    gradient, change = randn(generator, d), randn(generator, d)
    return [
        Case("two weights by hand", (vector(0.5, -1.0), hessian, vector(1.0, 2.0))),
        Case("six weights, uphill", (gradient * (gradient @ change).sign(), random_hessian(generator, d), change)),
        Case(
            "at a minimum: the gradient is zero",
            (torch.zeros(d), random_hessian(generator, d), randn(generator, d)),
        ),
        Case("one weight moves", (randn(generator, d), random_hessian(generator, d), _only(randn(generator, d), 3))),
        Case("downhill: the error falls", (vector(1.0, 1.0), hessian, vector(-0.25, 0.0))),
    ]


TAYLOR = Exercise(
    id="classic.taylor",
    title="What a change costs",
    difficulty=1,
    minutes=5,
    points=2,
    reference=lambda gradient, hessian, change: (gradient @ change + 0.5 * change @ hessian @ change).item(),
    cases=_taylor_cases,
    mistakes=(
        Mistake(
            "half forgotten",
            "The second-order term of a Taylor expansion carries ½.",
            lambda g, h, c: g @ c + c @ h @ c,
        ),
        Mistake(
            "half of both terms",
            "The ½ belongs to the second-order term alone: gᵀδ + ½ δᵀHδ.",
            lambda g, h, c: 0.5 * (g @ c + c @ h @ c),
        ),
        Mistake(
            "made positive",
            "A change may also lower the error. Keep the sign.",
            lambda g, h, c: (g @ c + 0.5 * c @ h @ c).abs(),
            also=(
                lambda g, h, c: (g @ c).abs() + 0.5 * c @ h @ c,
                lambda g, h, c: (g @ c + 0.5 * c @ h @ c).clamp(min=0),
            ),
        ),
        Mistake(
            "gradient dropped",
            "The first-order term vanishes only at a minimum; the function is asked about any point.",
            lambda g, h, c: 0.5 * c @ h @ c,
        ),
        Mistake(
            "diagonal only",
            "Σ h_ii δ_i² leaves out the products δ_i δ_j. That is OBD's approximation, the next exercise.",
            lambda g, h, c: g @ c + 0.5 * (h.diagonal() * c.square()).sum(),
        ),
        Mistake(
            "second term forgotten",
            "This is the slope alone. At a minimum it says nothing; the curvature is the second term, ½ δᵀHδ.",
            lambda g, h, c: g @ c,
        ),
        Mistake(
            "second term subtracted",
            "A minimum bends up: the second term is added.",
            lambda g, h, c: g @ c - 0.5 * c @ h @ c,
        ),
        Mistake(
            "change in one place of two",
            "δᵀHδ = Σ_ij δ_i h_ij δ_j has the change on both sides of H; here one index meets it twice, or not at all.",
            lambda g, h, c: g @ c + 0.5 * (c * h * c).sum(),
            also=(
                lambda g, h, c: g @ c + 0.5 * (h @ c).sum(),
                lambda g, h, c: g @ c + 0.5 * (h * c.square()).sum(),
            ),
        ),
        Mistake(
            "one number for each weight",
            "The change of the error is one number. Add up over the weights: @ does, * does not.",
            lambda g, h, c: g * c + 0.5 * c * (h @ c),
            also=(lambda g, h, c: g + 0.5 * h @ c, lambda g, h, c: g * c + 0.5 * h.diagonal() * c.square()),
        ),
        Mistake(
            "change squared in the first term",
            "The first term is linear in the change: gᵀδ.",
            lambda g, h, c: g @ c.square() + 0.5 * c @ h @ c,
        ),
        Mistake(
            "gradient in place of the change",
            "The curvature is met by the change, not by the gradient: ½ δᵀHδ.",
            lambda g, h, c: g @ c + 0.5 * g @ h @ g,
        ),
        Mistake(
            "sign of the gradient",
            "The error rises by gᵀδ when the weights move by δ. The minus belongs to a descent step.",
            lambda g, h, c: -(g @ c) + 0.5 * c @ h @ c,
        ),
    ),
    also_right=(
        Variant("einsum", lambda g, h, c: torch.einsum("i,i", g, c) + torch.einsum("i,ij,j", c, h, c) / 2),
        Variant("a Python number", lambda g, h, c: ((g + 0.5 * h @ c) @ c).item()),
        Variant("one row and one column", lambda g, h, c: g[None] @ c[:, None] + 0.5 * c[None] @ h @ c[:, None]),
    ),
    hints=(
        "Two terms: one linear in the change, one quadratic.",
        "gradient @ change, and half of change @ hessian @ change.",
    ),
)
