"""The exercise classic.obs_update, "The others make up for it": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import random_hessian, surface_cases, update_by_obs, vector
from course_lib.lessons.common.answers import compare_bars


def _negative(generator: torch.Generator, d: int) -> tuple[Tensor, Tensor, int]:
    """Its last weight is deleted, and is below zero."""
    weight, inverse = randn(generator, d), torch.linalg.inv(random_hessian(generator, d))
    return torch.cat([weight[:-1], -weight[-1:].abs() - 0.5]), inverse, d - 1


def _library(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    from course_lib.pruning.classic.surfaces import Inverse

    return weight + Inverse(inverse).change(weight, q)


def _forced(weight: Tensor, q: int) -> Tensor:
    """Zero at q, whatever the update left there."""
    return weight.index_fill(0, torch.tensor(q), 0.0)


OBS_UPDATE = Exercise(
    id="classic.obs_update",
    title="The others make up for it",
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
    mistakes=(
        Mistake(
            "nothing else moves",
            "Weight q is gone, and the rest stayed as it was. That is OBD's deletion; add the column of H⁻¹. "
            "If you did: was weight[q] set to zero before the update used it?",
            lambda w, i, q: w.index_fill(0, torch.tensor(q), 0.0),
        ),
        Mistake(
            "wrong direction",
            "The others moved away from where they help. δw = −w_q / [H⁻¹]_qq · H⁻¹ e_q, and at q it must give −w_q.",
            lambda w, i, q: w + w[q] / i[q, q] * i[:, q],
            also=(lambda w, i, q: (w + w[q] / i[q, q] * i[:, q]).index_fill(0, torch.tensor(q), 0.0),),
        ),
        Mistake(
            "not divided by the pivot",
            "Without 1 / [H⁻¹]_qq weight q does not end at zero, and the others move by a wrong amount.",
            lambda w, i, q: w - w[q] * i[:, q],
            also=(lambda w, i, q: (w - w[q] * i[:, q]).index_fill(0, torch.tensor(q), 0.0),),
        ),
        Mistake(
            "column of H",
            "The direction is a column of the inverse. A column of H itself points up the steepest slope.",
            lambda w, i, q: w - w[q] / torch.linalg.inv(i)[q, q] * torch.linalg.inv(i)[:, q],
        ),
        Mistake(
            "size of the deleted weight",
            "The absolute value turns the update round where w_q is negative: keep its sign.",
            lambda w, i, q: w - w[q].abs() / i[q, q] * i[:, q],
            also=(lambda w, i, q: _forced(w - w[q].abs() / i[q, q] * i[:, q], q),),
        ),
        Mistake(
            "not scaled by the deleted weight",
            "The update is in proportion to w_q: −w_q / [H⁻¹]_qq · H⁻¹ e_q.",
            lambda w, i, q: w - i[:, q] / i[q, q],
            also=(lambda w, i, q: _forced(w - i[:, q] / i[q, q], q),),
        ),
        Mistake(
            "half of the update",
            "The 2 belongs to the saliency, not to the update: at q the change must give −w_q.",
            lambda w, i, q: w - w[q] / (2 * i[q, q]) * i[:, q],
            also=(lambda w, i, q: _forced(w - w[q] / (2 * i[q, q]) * i[:, q], q),),
        ),
        Mistake(
            "weight squared",
            "w_q² is the saliency. The update is linear in w_q.",
            lambda w, i, q: w - w[q] ** 2 / i[q, q] * i[:, q],
            also=(
                lambda w, i, q: w - w[q] ** 2 / (2 * i[q, q]) * i[:, q],
                lambda w, i, q: _forced(w - w[q] ** 2 / (2 * i[q, q]) * i[:, q], q),
            ),
        ),
        Mistake(
            "multiplied by the pivot",
            "Divide by [H⁻¹]_qq: the column, scaled so that its q-th entry is 1, times −w_q.",
            lambda w, i, q: w - w[q] * i[q, q] * i[:, q],
            also=(lambda w, i, q: _forced(w - w[q] * i[q, q] * i[:, q], q),),
        ),
        Mistake(
            "each weight in place of the deleted one",
            "w_q, one number, scales the whole column. Here every weight is scaled by itself.",
            lambda w, i, q: w - w / i[q, q] * i[:, q],
            also=(lambda w, i, q: w - w * i[:, q],),
        ),
        Mistake(
            "one weight less",
            "The deleted weight is cut out. Return all d of them, zero at q.",
            lambda w, i, q: torch.cat([update_by_obs(w, i, q)[:q], update_by_obs(w, i, q)[q + 1 :]]),
        ),
        Mistake(
            "all columns together",
            "Only column q of the inverse moves the weights, not the sum of all columns.",
            lambda w, i, q: w - w[q] / i[q, q] * i.sum(dim=1),
            also=(lambda w, i, q: w - i @ w / i[q, q], lambda w, i, q: w - i @ w),
        ),
        Mistake(
            "change instead of the weights",
            "This is δw. Return the weights after it: w + δw.",
            lambda w, i, q: -w[q] / i[q, q] * i[:, q],
        ),
        Mistake(
            "diagonal instead of the column",
            "Each weight moves by its entry in column q of H⁻¹, not by its own entry on the diagonal.",
            lambda w, i, q: w - w[q] / i[q, q] * i.diagonal(),
        ),
    ),
    also_right=(
        Variant("without forcing the zero", lambda w, i, q: w - w[q] * i[:, q] / i[q, q]),
        Variant("by the row, H⁻¹ is symmetric", lambda w, i, q: w.sub_(i[q] * (w[q] / i[q, q]))),
        Variant("a direct solution", lambda w, i, q: _solved(w, i, q)),
    ),
    hints=(
        "H δw + μ e_q = 0 says that δw = −μ H⁻¹ e_q: a multiple of column q of the inverse, inverse[:, q].",
        "Which multiple? The one whose q-th entry is −w_q, so that weight q becomes zero.",
        "Divide the column by its own q-th entry, multiply by −w_q, and add the result to the weights.",
    ),
)


def _solved(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    hessian, rest = torch.linalg.inv(inverse), [k for k in range(len(weight)) if k != q]
    moved = torch.linalg.solve(hessian[rest][:, rest], hessian[rest, q] * weight[q])
    return torch.zeros_like(weight).index_put((torch.tensor(rest),), weight[rest] + moved)
