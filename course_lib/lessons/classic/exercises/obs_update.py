"""The exercise classic.obs_update, "Update the other weights"; its named mistakes are in obs_update.md."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import random_hessian, surface_cases, update_by_obs, vector
from course_lib.lessons.common.answers import compare_bars


def _negative(generator: torch.Generator, d: int) -> tuple[Tensor, Tensor, int]:
    """Weights of which the last one is negative, and is deleted."""
    weight, inverse = randn(generator, d), torch.linalg.inv(random_hessian(generator, d))
    return torch.cat([weight[:-1], -weight[-1:].abs() - 0.5]), inverse, d - 1


def _library(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    from course_lib.pruning.classic.surfaces import Inverse

    return weight + Inverse(inverse).change(weight, q)


def _forced(weight: Tensor, q: int) -> Tensor:
    """The weights with a zero at q."""
    return weight.index_fill(0, torch.tensor(q), 0.0)


OBS_UPDATE = Exercise(
    id="classic.obs_update",
    title="Update the other weights",
    difficulty=3,
    minutes=10,
    points=3,
    reference=update_by_obs,
    cases=lambda generator: (
        [
            Case(f"{name}, weight {q} is deleted", (w, inverse, q))
            for q, (name, w, inverse) in zip((0, 4, 2), surface_cases(generator), strict=True)
        ]
        + [
            Case("a negative weight by hand", (vector(2.0, -3.0), torch.tensor([[2.0, 1.0], [1.0, 4.0]]), 1)),
            Case("the last of seven, negative", _negative(generator, 7)),
        ]
    ),
    picture=lambda case, got, expected: compare_bars(
        got,
        expected,
        tuple(str(k) for k in range(len(expected))),
        f"weights after number {case.arguments[2]} is deleted",
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("without forcing the zero", lambda w, i, q: w - w[q] * i[:, q] / i[q, q]),
        Variant("by the row, H⁻¹ is symmetric", lambda w, i, q: w.sub_(i[q] * (w[q] / i[q, q]))),
        Variant("a direct solution", lambda w, i, q: _solved(w, i, q)),
    ),
    hints=(
        "H δw + μ e_q = 0 gives δw = −μ H⁻¹ e_q, a multiple of column q of the inverse: inverse[:, q].",
        "Which multiple? The one whose q-th entry is −w_q, so that weight q becomes zero.",
        "Divide the column by its own q-th entry, multiply by −w_q, and add the result to the weights.",
    ),
)


def _solved(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    hessian, rest = torch.linalg.inv(inverse), [k for k in range(len(weight)) if k != q]
    moved = torch.linalg.solve(hessian[rest][:, rest], hessian[rest, q] * weight[q])
    return torch.zeros_like(weight).index_put((torch.tensor(rest),), weight[rest] + moved)
