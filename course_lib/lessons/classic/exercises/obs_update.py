"""The exercise classic.obs_update, "The others make up for it": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import surface_cases, update_by_obs

OBS_UPDATE = Exercise(
    id="classic.obs_update",
    title="The others make up for it",
    difficulty=3,
    minutes=8,
    points=3,
    reference=update_by_obs,
    cases=lambda generator: [
        Case(f"{name}, weight {q} leaves", (w, inverse, q))
        for q, (name, w, inverse) in zip((0, 4, 2), surface_cases(generator), strict=True)
    ],
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
        "H⁻¹ e_q is column q of the inverse: inverse[:, q].",
        "Scale the column so that its q-th entry becomes −w_q, and add it to the weights.",
    ),
)


def _solved(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    hessian, rest = torch.linalg.inv(inverse), [k for k in range(len(weight)) if k != q]
    moved = torch.linalg.solve(hessian[rest][:, rest], hessian[rest, q] * weight[q])
    return torch.zeros_like(weight).index_put((torch.tensor(rest),), weight[rest] + moved)
