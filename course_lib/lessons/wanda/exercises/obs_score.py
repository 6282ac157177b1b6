"""The exercise wanda.obs_score, "SparseGPT's score, and its limit": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

import numpy
import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _obs(weight: Tensor, gram: Tensor, damping: float) -> Tensor:
    return weight.square() / torch.linalg.inv(gram + damping * torch.eye(len(gram))).diagonal()


def _obs_cases(generator: torch.Generator) -> list[Case]:
    gram = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # inverse [[2/3, -1/3], [-1/3, 2/3]]
    x = torch.randn(40, 12, generator=generator) * torch.rand(12, generator=generator)
    x[:, 3] = x[:, 2] + 0.1 * x[:, 3]  # two inputs that say nearly the same
    diagonal = torch.diag(torch.tensor([4.0, 1.0, 9.0]))
    return [
        Case("2 × 2 by hand, no damping", (torch.tensor([[1.0, 2.0], [3.0, -1.0]]), gram, 0.0)),
        Case("correlated inputs", (torch.randn(9, 12, generator=generator), x.T @ x, 0.01)),
        Case("uncorrelated inputs: the limit that is Wanda", (torch.randn(5, 3, generator=generator), diagonal, 0.0)),
        Case("a singular Gram matrix, damped", (torch.randn(4, 6, generator=generator), torch.full((6, 6), 3.0), 0.5)),
    ]


OBS_SCORE = Exercise(
    id="wanda.obs_score",
    title="SparseGPT's score, and its limit",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_obs,
    cases=_obs_cases,
    mistakes=(
        Mistake(
            "diagonal inverted instead of the matrix",
            "1 / H_jj is the diagonal of the inverse only when H is diagonal; that limit is Wanda. Invert first, then "
            "take the diagonal.",
            lambda w, g, d: w.square() * (g + d * torch.eye(len(g))).diagonal(),
            also=(
                lambda w, g, d: w.square() * g.diagonal(),
                lambda w, g, d: w.abs() * g.diagonal().sqrt(),
            ),
        ),
        Mistake(
            "divided by the diagonal of H",
            "This divides by H_jj. A loud input would make its weights cheap; divide by the diagonal of the inverse.",
            lambda w, g, d: w.square() / (g + d * torch.eye(len(g))).diagonal(),
        ),
        Mistake(
            "λ as a share of the mean",
            "This is the damping of lesson 03, a share of the mean diagonal. Here λ is added to the diagonal as it is.",
            lambda w, g, d: _obs(w, g, float(d * g.diagonal().mean())),
            also=(lambda w, g, d: _obs(w, g, float(d * g.trace())),),
        ),
        Mistake(
            "with the factor of one half",
            "The formula has no factor: the text leaves the ½ out, since it changes no ranking.",
            lambda w, g, d: _obs(w, g, d) / 2,
        ),
        Mistake(
            "the root of it",
            "This is the root of the score, on the scale of Wanda's. It ranks alike; the formula has W² and no root.",
            lambda w, g, d: _obs(w, g, d).sqrt(),
        ),
        Mistake(
            "λ on every entry",
            "λI has λ on the diagonal alone: damping * torch.eye(I).",
            lambda w, g, d: w.square() / torch.linalg.pinv(g + d).diagonal(),
            also=(lambda w, g, d: w.square() / torch.linalg.inv(g + d).diagonal(),),
        ),
        Mistake(
            "damped too late",
            "λ was added after inverting. It is the matrix that may have no inverse: add λI first.",
            lambda w, g, d: w.square() / (torch.linalg.pinv(g).diagonal() + d),
            also=(
                lambda w, g, d: w.square() / (torch.linalg.inv(g).diagonal() + d),
                lambda w, g, d: w.square() / (torch.linalg.inv(g + d * torch.eye(len(g))).diagonal() + d),
            ),
        ),
        Mistake(
            "the whole inverse",
            "W² meets all of the inverse. Each weight W_ij needs one number of it, the diagonal entry of its input j.",
            lambda w, g, d: w.square() @ torch.linalg.inv(g + d * torch.eye(len(g))),
            also=(lambda w, g, d: w.square() / torch.linalg.inv(g + d * torch.eye(len(g))).sum(0),),
        ),
        Mistake(
            "diagonal of the Cholesky factor",
            "[H⁻¹]_jj is the sum of squares of a row of the factor, and not the square of its diagonal entry: that is "
            "the inverse of what is left, SparseGPT's in the middle of its sweep.",
            lambda w, g, d: (
                w.square() / torch.linalg.cholesky(torch.linalg.inv(g + d * torch.eye(len(g)))).diagonal().square()
            ),
        ),
        Mistake(
            "damping forgotten",
            "Without λI a singular Gram matrix has no inverse.",
            lambda w, g, d: w.square() / torch.linalg.inv(g).diagonal(),
            also=(
                lambda w, g, d: w.square() / torch.linalg.pinv(g).diagonal(),
                lambda w, g, d: w.numpy() ** 2 / numpy.linalg.inv(g.numpy()).diagonal(),
            ),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large [H⁻¹]_jj means that the others can make up for weight j, so its score must fall with it.",
            lambda w, g, d: w.square() * torch.linalg.inv(g + d * torch.eye(len(g))).diagonal(),
        ),
        Mistake(
            "weight not squared",
            "The loss is quadratic in the weight that leaves: W_ij².",
            lambda w, g, d: w.abs() / torch.linalg.inv(g + d * torch.eye(len(g))).diagonal(),
            also=(lambda w, g, d: w / torch.linalg.inv(g + d * torch.eye(len(g))).diagonal(),),
        ),
    ),
    also_right=(
        Variant(
            "by Cholesky",
            lambda w, g, d: w**2 / torch.cholesky_inverse(torch.linalg.cholesky(g + d * torch.eye(len(g)))).diagonal(),
        ),
        Variant(
            "float64",
            lambda w, g, d: w.double() ** 2 / torch.linalg.inv(g.double() + d * torch.eye(len(g)).double()).diagonal(),
        ),
    ),
    hints=(
        "Three steps: damp the Gram matrix, invert it, take the diagonal.",
        "torch.linalg.inv(gram + damping * torch.eye(I)).diagonal() is a vector over inputs.",
    ),
)
