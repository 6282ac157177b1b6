"""The exercise wanda.obs_score, "What a removal costs": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _costs(weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    return _alone(weight, gram), _helped(weight, gram)


def _alone(weight: Tensor, gram: Tensor) -> Tensor:
    return weight.square() * gram.diagonal()


def _helped(weight: Tensor, gram: Tensor) -> Tensor:
    return weight.square() / torch.linalg.inv(gram).diagonal()


def _cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # inverse [[2/3, -1/3], [-1/3, 2/3]]
    x = torch.randn(40, 12, generator=generator) * torch.rand(12, generator=generator)
    x[:, 3] = x[:, 2] + 0.1 * x[:, 3]  # two inputs that are nearly the same
    diagonal = torch.diag(torch.tensor([4.0, 1.0, 9.0]))
    alike = torch.full((6, 6), 3.0) + 0.5 * torch.eye(6)
    return [
        Case("2 × 2 by hand", (torch.tensor([[1.0, 2.0], [3.0, -1.0]]), by_hand)),
        Case("correlated inputs", (torch.randn(9, 12, generator=generator), _damped(x.T @ x))),
        Case("uncorrelated inputs: the others cannot help", (torch.randn(5, 3, generator=generator), diagonal)),
        Case("six inputs that are the same, damped", (torch.randn(4, 6, generator=generator), alike)),
    ]


def _damped(gram: Tensor, share: float = 0.01) -> Tensor:
    return gram + share * gram.diagonal().mean() * torch.eye(len(gram))


def _library(weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.wanda.experiments.masks import removal_costs

    return removal_costs(weight, gram)


def _by_least_squares(weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Change the other weights in the best way, for one input after the other, and measure the remaining cost."""
    h = gram.double()
    left = []
    for j in range(len(h)):
        others = [i for i in range(len(h)) if i != j]
        step = torch.linalg.solve(h[others][:, others], h[others, j])  # for a weight of 1
        left.append(h[j, j] - h[j, others] @ step)
    return weight**2 * gram.diagonal(), weight**2 * torch.stack(left).float()


OBS_SCORE = Exercise(
    id="wanda.obs_score",
    title="What a removal costs",
    difficulty=4,
    minutes=15,
    points=4,
    reference=_costs,
    cases=_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "by Cholesky",
            lambda w, g: (w**2 * g.diag(), w**2 / torch.cholesky_inverse(torch.linalg.cholesky(g)).diagonal()),
        ),
        Variant("float64", lambda w, g: _costs(w.double(), g.double())),
        Variant("the others moved by least squares", _by_least_squares),
    ),
    hints=(
        "Alone: the row changes by −W_ij at position j and by 0 elsewhere. Insert this δ into δᵀHδ.",
        "Helped: minimise δᵀHδ under δ_j = −W_ij with a Lagrange multiplier. Setting the derivative to zero gives "
        "2Hδ = μ·e_j, so δ is a multiple of column j of H⁻¹, and δ_j = −W_ij fixes the multiple.",
        "Insert this δ into δᵀHδ: H and H⁻¹ cancel once. Which entry of the inverse is left, and to which power?",
    ),
)
