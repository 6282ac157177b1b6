"""The exercise classic.obs_saliency, "The saliency of OBS"; its named mistakes are in obs_saliency.md."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import saliency_by_obs, surface_cases
from course_lib.lessons.common.answers import compare_bars


def _library(weight: Tensor, inverse: Tensor) -> Tensor:
    from course_lib.pruning.classic.surfaces import Inverse

    return Inverse(inverse).saliency(weight)


OBS_SALIENCY = Exercise(
    id="classic.obs_saliency",
    title="The saliency of OBS",
    difficulty=2,
    minutes=5,
    points=2,
    reference=saliency_by_obs,
    cases=lambda generator: [Case(name, (w, inverse)) for name, w, inverse in surface_cases(generator)],
    picture=lambda case, got, expected: compare_bars(
        got, expected, tuple(str(q) for q in range(len(expected))), "rise of the error when the weight is deleted"
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a loop", lambda w, i: torch.stack([w[q] ** 2 / (2 * i[q, q]) for q in range(len(w))])),
        Variant("einsum for the diagonal", lambda w, i: w.pow(2).div(2 * torch.einsum("ii->i", i))),
    ),
    hints=(
        "H H⁻¹ e_q is e_q again, and e_qᵀ H⁻¹ e_q is one entry of the inverse.",
        "½ δwᵀHδw = ½ w_q² / [H⁻¹]_qq² · [H⁻¹]_qq. Cancel.",
        "inverse.diagonal() is the vector of [H⁻¹]_qq, for all q at once.",
    ),
)
