"""The exercise classic.obs_saliency, "The surgeon's saliency": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.classic.exercises.common import saliency_by_obs, surface_cases
from course_lib.lessons.common.answers import compare_bars


def _library(weight: Tensor, inverse: Tensor) -> Tensor:
    from course_lib.pruning.classic.surfaces import Inverse

    return Inverse(inverse).saliency(weight)


OBS_SALIENCY = Exercise(
    id="classic.obs_saliency",
    title="The surgeon's saliency",
    difficulty=2,
    minutes=5,
    points=2,
    reference=saliency_by_obs,
    cases=lambda generator: [Case(name, (w, inverse)) for name, w, inverse in surface_cases(generator)],
    picture=lambda case, got, expected: compare_bars(
        got, expected, tuple(str(q) for q in range(len(expected))), "rise of the error when it is deleted"
    ),
    library=_library,
    mistakes=(
        Mistake(
            "half forgotten",
            "The order is right, but each number is twice the rise of the error: L_q = ½ w_q² / [H⁻¹]_qq.",
            lambda w, i: w.square() / i.diagonal(),
        ),
        Mistake(
            "diagonal of H",
            "h_qq prices a deletion in which nothing else moves. That is OBD; the surgeon divides by [H⁻¹]_qq.",
            lambda w, i: 0.5 * w.square() * torch.linalg.inv(i).diagonal(),
        ),
        Mistake(
            "divided by the diagonal of H",
            "h_qq is the wrong matrix and stands in the wrong place: w_q² / (2 [H⁻¹]_qq).",
            lambda w, i: 0.5 * w.square() / torch.linalg.inv(i).diagonal(),
            also=(lambda w, i: w.square() / torch.linalg.inv(i).diagonal(),),
        ),
        Mistake(
            "a matrix in place of its diagonal",
            "This divides by every entry of the inverse. Only the diagonal belongs there: inverse.diagonal().",
            lambda w, i: w.square() / (2 * i),
            also=(lambda w, i: w.square()[:, None] / (2 * i), lambda w, i: torch.outer(w, w) / (2 * i)),
        ),
        Mistake(
            "twice in place of half",
            "The 2 stands below the line: w² / (2 · d) is half of w² / d, and 2 · w² / d is four times as much.",
            lambda w, i: 2 * w.square() / i.diagonal(),
        ),
        Mistake(
            "diagonal squared",
            "[H⁻¹]_qq enters once. (w_q / [H⁻¹]_qq)² is the Lagrange multiplier, squared.",
            lambda w, i: 0.5 * (w / i.diagonal()).square(),
            also=(lambda w, i: (w / i.diagonal()).square(),),
        ),
        Mistake(
            "magnitude alone",
            "The inverse is unused: this ranks like magnitude pruning.",
            lambda w, i: 0.5 * w.square(),
            also=(lambda w, i: w.square(), lambda w, i: w.abs()),
        ),
        Mistake(
            "the lowest alone",
            "This is the saliency of one weight. Return those of all.",
            lambda w, i: (0.5 * w.square() / i.diagonal()).min(),
        ),
        Mistake(
            "the index of the lowest",
            "This says which weight is the cheapest. Return the saliencies of all weights.",
            lambda w, i: (0.5 * w.square() / i.diagonal()).argmin(),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large [H⁻¹]_qq means that the others can make up for weight q, so it is cheap: divide.",
            lambda w, i: 0.5 * w.square() * i.diagonal(),
            also=(lambda w, i: w.square() * i.diagonal(),),
        ),
        Mistake(
            "weight not squared",
            "The cost is quadratic in the deleted weight: w_q².",
            lambda w, i: 0.5 * w.abs() / i.diagonal(),
            also=(lambda w, i: w.abs() / i.diagonal(), lambda w, i: 0.5 * w / i.diagonal()),
        ),
        Mistake(
            "whole column instead of the diagonal",
            "Only [H⁻¹]_qq itself belongs in the denominator, not the norm or the sum of its row or column.",
            lambda w, i: 0.5 * w.square() / i.norm(dim=0),
            also=(
                lambda w, i: 0.5 * w.square() / i.sum(0),
                lambda w, i: 0.5 * w.square() / i.sum(1),  # of a sum that cancels, every order has another rest
                lambda w, i: 0.5 * w.square() / i.abs().sum(0),
            ),
        ),
    ),
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
