"""The exercise classic.taylor, "What deletions cost": its cases and its named mistakes.

Dimension key: d weights.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import random_hessian, vector


def _by_change(answer: Callable) -> Callable:
    """An answer that is given the change; here the deletions are turned into one, rightly."""
    return lambda gradient, hessian, weight, gone: answer(gradient, hessian, torch.where(gone, -weight, 0.0))


def _rise(gradient: Tensor, hessian: Tensor, change: Tensor) -> Tensor:
    return gradient @ change + 0.5 * change @ hessian @ change


def _library(gradient: Tensor, hessian: Tensor, weight: Tensor, gone: Tensor) -> float:
    moved = weight.masked_fill(~gone, 0.0).neg()
    slope, bend = torch.dot(gradient, moved), torch.einsum("i,ij,j->", moved, hessian, moved)
    return float(slope + bend / 2)


def _some(*places: int, d: int = 6) -> Tensor:
    return torch.isin(torch.arange(d), torch.tensor(places))


def _taylor_cases(generator: torch.Generator) -> list[Case]:
    hessian, d = torch.tensor([[4.0, 1.0], [1.0, 2.0]]), 6
    gradient, weight = randn(generator, d), randn(generator, d)
    uphill = -gradient * (gradient[:3] @ weight[:3]).sign()
    one, both = torch.tensor([False, True]), torch.tensor([True, True])
    return [
        Case("one of two weights, by hand", (vector(0.5, -1.0), hessian, vector(-1.0, -2.0), one)),
        Case("both of two weights, by hand", (vector(0.5, -1.0), hessian, vector(-1.0, -2.0), both)),
        Case("three of six weights, uphill", (uphill, random_hessian(generator, d), weight, _some(0, 1, 2))),
        Case(
            "two of six at a minimum: the gradient is zero",
            (torch.zeros(d), random_hessian(generator, d), randn(generator, d), _some(1, 4)),
        ),
        Case("one of six", (randn(generator, d), random_hessian(generator, d), randn(generator, d), _some(3))),
        Case("all, downhill: the error falls", (vector(1.0, 1.0), hessian, vector(0.25, 0.125), both)),
    ]


TAYLOR = Exercise(
    id="classic.taylor",
    title="What deletions cost",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda gradient, hessian, weight, gone: _by_change(_rise)(gradient, hessian, weight, gone).item(),
    cases=_taylor_cases,
    library=_library,
    mistakes=(
        Mistake(
            "half forgotten",
            "The second-order term of a Taylor expansion carries ½.",
            _by_change(lambda g, h, c: g @ c + c @ h @ c),
        ),
        Mistake(
            "half of both terms",
            "The ½ belongs to the second-order term alone: gᵀδ + ½ δᵀHδ.",
            _by_change(lambda g, h, c: 0.5 * (g @ c + c @ h @ c)),
        ),
        Mistake(
            "made positive",
            "A change may also lower the error. Keep the sign.",
            _by_change(lambda g, h, c: (g @ c + 0.5 * c @ h @ c).abs()),
            also=(
                _by_change(lambda g, h, c: (g @ c).abs() + 0.5 * c @ h @ c),
                _by_change(lambda g, h, c: (g @ c + 0.5 * c @ h @ c).clamp(min=0)),
            ),
        ),
        Mistake(
            "gradient dropped",
            "The first-order term vanishes only at a minimum; the function is asked about any point.",
            _by_change(lambda g, h, c: 0.5 * c @ h @ c),
        ),
        Mistake(
            "diagonal only",
            "This adds up what each deletion costs alone. With two of them h_ij δ_i δ_j matters, too; without it "
            "you have OBD's approximation, the next exercise.",
            _by_change(lambda g, h, c: g @ c + 0.5 * (h.diagonal() * c.square()).sum()),
        ),
        Mistake(
            "second term forgotten",
            "This is the slope alone. At a minimum it says nothing; the curvature is the second term, ½ δᵀHδ.",
            _by_change(lambda g, h, c: g @ c),
        ),
        Mistake(
            "second term subtracted",
            "A minimum bends up: the second term is added.",
            _by_change(lambda g, h, c: g @ c - 0.5 * c @ h @ c),
        ),
        Mistake(
            "change in one place of two",
            "δᵀHδ = Σ_ij δ_i h_ij δ_j has the change on both sides of H; here one index meets it twice, or not at all.",
            _by_change(lambda g, h, c: g @ c + 0.5 * (c * h * c).sum()),
            also=(
                _by_change(lambda g, h, c: g @ c + 0.5 * (h @ c).sum()),
                _by_change(lambda g, h, c: g @ c + 0.5 * (h * c.square()).sum()),
            ),
        ),
        Mistake(
            "one number for each weight",
            "The change of the error is one number. Add up over the weights: @ does, * does not.",
            _by_change(lambda g, h, c: g * c + 0.5 * c * (h @ c)),
            also=(
                _by_change(lambda g, h, c: g + 0.5 * h @ c),
                _by_change(lambda g, h, c: g * c + 0.5 * h.diagonal() * c.square()),
            ),
        ),
        Mistake(
            "change squared in the first term",
            "The first term is linear in the change: gᵀδ.",
            _by_change(lambda g, h, c: g @ c.square() + 0.5 * c @ h @ c),
        ),
        Mistake(
            "gradient in place of the change",
            "The curvature is met by the change, not by the gradient: ½ δᵀHδ.",
            _by_change(lambda g, h, c: g @ c + 0.5 * g @ h @ g),
        ),
        Mistake(
            "sign of the change",
            "A deletion moves weight k from w_k to 0, by −w_k. With +w_k the linear term has the wrong sign.",
            _by_change(lambda g, h, c: -(g @ c) + 0.5 * c @ h @ c),
        ),
        Mistake(
            "all deleted",
            "Only the weights where gone is True are deleted; the others do not move, so their change is zero.",
            lambda g, h, w, gone: _rise(g, h, -w),
        ),
        Mistake(
            "the others deleted",
            "gone is True where a weight is deleted, not where it is kept.",
            lambda g, h, w, gone: _rise(g, h, torch.where(gone, 0.0, -w)),
        ),
        Mistake(
            "mask in place of the weights",
            "A deletion changes a weight by −w_k, whatever its size; here every change is 1, or −1.",
            lambda g, h, w, gone: _rise(g, h, gone.float()),
            also=(lambda g, h, w, gone: _rise(g, h, -gone.float()),),
        ),
        Mistake(
            "kept weights on one side",
            "In δᵀHδ both factors are the change, and it is zero for weights that are kept.",
            lambda g, h, w, gone: g @ torch.where(gone, -w, 0.0) + 0.5 * torch.where(gone, -w, 0.0) @ h @ -w,
        ),
    ),
    also_right=(
        Variant("einsum", _by_change(lambda g, h, c: torch.einsum("i,i", g, c) + torch.einsum("i,ij,j", c, h, c) / 2)),
        Variant("a Python number", _by_change(lambda g, h, c: ((g + 0.5 * h @ c) @ c).item())),
        Variant(
            "one row and one column", _by_change(lambda g, h, c: g[None] @ c[:, None] + 0.5 * c[None] @ h @ c[:, None])
        ),
    ),
    hints=(
        "First write the change: −w_k where weight k is deleted, and 0 everywhere else. -weight * gone does that.",
        "Then two terms of the expansion: one linear in the change, one quadratic with its ½.",
        "With the change of the first hint: gradient @ change, and half of change @ hessian @ change.",
    ),
)
