"""The exercise classic.taylor, "What deletions cost"; its named mistakes are in taylor.md.

Dimension key: d weights.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import random_hessian, vector


def _by_change(answer: Callable) -> Callable:
    """Call an answer with the change that the deletions make."""
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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("einsum", _by_change(lambda g, h, c: torch.einsum("i,i", g, c) + torch.einsum("i,ij,j", c, h, c) / 2)),
        Variant("a Python number", _by_change(lambda g, h, c: ((g + 0.5 * h @ c) @ c).item())),
        Variant(
            "one row and one column", _by_change(lambda g, h, c: g[None] @ c[:, None] + 0.5 * c[None] @ h @ c[:, None])
        ),
    ),
    hints=(
        "First compute the change: −w_k where weight k is deleted, and 0 for all other weights.",
        "Then compute the two terms of the expansion, one linear in the change and one quadratic with a factor ½.",
        "With the change of the first hint, add gradient @ change and half of change @ hessian @ change.",
    ),
)
