"""The exercise wanda.obs_score, "What a removal costs": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


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
        Case("uncorrelated inputs: nobody can help", (torch.randn(5, 3, generator=generator), diagonal)),
        Case("six inputs that are the same, damped", (torch.randn(4, 6, generator=generator), alike)),
    ]


def _damped(gram: Tensor, share: float = 0.01) -> Tensor:
    return gram + share * gram.diagonal().mean() * torch.eye(len(gram))


def _library(weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.wanda.experiments.masks import removal_costs

    return removal_costs(weight, gram)


def _by_least_squares(weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Move the others by the best step, one input after the other, and measure what is left."""
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
    mistakes=(
        Mistake(
            "nobody helps",
            "Both costs are those of removing the weight alone. For the second the other weights of the row move too: "
            "minimise over their steps. 1 / H_jj is the diagonal of the inverse only where H is diagonal.",
            lambda w, g: (_alone(w, g), _alone(w, g)),
        ),
        Mistake(
            "everybody helps",
            "Both costs are those with the help of the others. For the first nothing but the weight itself changes.",
            lambda w, g: (_helped(w, g), _helped(w, g)),
        ),
        Mistake(
            "the other way round",
            "The numbers are right, but not in the order (alone, helped): help never makes a removal dearer.",
            lambda w, g: (_helped(w, g), _alone(w, g)),
        ),
        Mistake(
            "divided by the diagonal of H",
            "This divides by H_jj, which makes the weights of a large input cheap. Where the others may move, divide "
            "by the diagonal of the inverse.",
            lambda w, g: (_alone(w, g), w.square() / g.diagonal()),
        ),
        Mistake(
            "the first divided by the diagonal of H",
            "Without help, removing W_ij changes the output by W_ij times input j, and H_jj is the sum of squares of "
            "that input: the first cost is multiplied by H_jj.",
            lambda w, g: (w.square() / g.diagonal(), _helped(w, g)),
        ),
        Mistake(
            "with a factor of one half",
            "The cost is the squared change itself, δᵀHδ. The ½ belongs to a loss that begins with ½.",
            lambda w, g: (_alone(w, g) / 2, _helped(w, g) / 2),
            also=(
                lambda w, g: (_alone(w, g), _helped(w, g) / 2),
                lambda w, g: (_alone(w, g) / 2, _helped(w, g)),
            ),
        ),
        Mistake(
            "the root of it",
            "The first, or both, are the root of the cost, on the scale of Wanda's score. The root ranks alike; asked "
            "for are the squared changes.",
            lambda w, g: (_alone(w, g).sqrt(), _helped(w, g).sqrt()),
            also=(lambda w, g: (_alone(w, g).sqrt(), _helped(w, g)),),
        ),
        Mistake(
            "what the others save",
            "This is the difference of the two costs, what the others save. Return what is left to pay.",
            lambda w, g: (_alone(w, g), _alone(w, g) - _helped(w, g)),
        ),
        Mistake(
            "sums of rows",
            "All of row j of H, or of its inverse, counts here. Only one weight is removed, so only entry jj decides.",
            lambda w, g: (w.square() * g.sum(0), _helped(w, g)),
            also=(
                lambda w, g: (_alone(w, g), w.square() / torch.linalg.inv(g).sum(0)),
                lambda w, g: (_alone(w, g), w.square() @ torch.linalg.inv(g)),
            ),
        ),
        Mistake(
            "diagonal of the Cholesky factor",
            "[H⁻¹]_jj is the sum of squares of a row of the factor, and not the square of its diagonal entry: that is "
            "the inverse of what is left, SparseGPT's in the middle of its sweep.",
            lambda w, g: (
                _alone(w, g),
                w.square() / torch.linalg.cholesky(torch.linalg.inv(g)).diagonal().square(),
            ),
        ),
        Mistake(
            "damped once more",
            "The Gram matrix that you get is damped already. Another λ on its diagonal changes the costs.",
            lambda w, g: _costs(w, _damped(g)),
            also=(
                lambda w, g: (_alone(w, g), _helped(w, _damped(g))),
                lambda w, g: (_alone(w, g), _helped(w, g + 0.01 * torch.eye(len(g)))),
            ),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large [H⁻¹]_jj means that the others can make up for weight j, so its cost must fall with it.",
            lambda w, g: (_alone(w, g), w.square() * torch.linalg.inv(g).diagonal()),
        ),
        Mistake(
            "weight not squared",
            "The change is W_ij times something, and the cost is its square: W_ij².",
            lambda w, g: (w.abs() * g.diagonal(), w.abs() / torch.linalg.inv(g).diagonal()),
            also=(lambda w, g: (w * g.diagonal(), w / torch.linalg.inv(g).diagonal()),),
        ),
        Mistake(
            "only one of the two",
            "Return both costs: without and with the help of the other weights.",
            _helped,
            also=(_alone,),
        ),
    ),
    also_right=(
        Variant(
            "by Cholesky",
            lambda w, g: (w**2 * g.diag(), w**2 / torch.cholesky_inverse(torch.linalg.cholesky(g)).diagonal()),
        ),
        Variant("float64", lambda w, g: _costs(w.double(), g.double())),
        Variant("the others moved by least squares", _by_least_squares),
    ),
    hints=(
        "Alone: the row changes by −W_ij in one place and by 0 elsewhere. Put that δ into δᵀHδ.",
        "Helped: minimise δᵀHδ under δ_j = −W_ij with a Lagrange multiplier. Its derivative says 2Hδ = μ·e_j, so δ is "
        "a multiple of column j of H⁻¹, and δ_j = −W_ij says which one.",
        "δ = −W_ij / [H⁻¹]_jj · H⁻¹e_j. In δᵀHδ one H meets one H⁻¹, and one entry of the inverse is left in the "
        "denominator.",
    ),
)
