"""The exercise wanda.score, "The Wanda score": its cases and its named mistakes.

Dimension key: N tokens, I inputs of a layer.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _agree_on_ranks(got: Any, expected: Tensor, case: Case) -> str | None:
    """Two scores agree when they rank every row and the whole layer alike; scale and square are free."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    got, expected = got.double(), expected.double()
    if not got.isfinite().all():
        return f"{int((~got.isfinite()).sum())} entries are NaN or infinite"
    in_rows, in_layer = _too_early(got, expected), _too_early(got.reshape(1, -1), expected.reshape(1, -1))
    if in_rows:
        row, n, worth = in_rows
        return f"row {row}: your {n} lowest scores include a weight whose true score is {worth:.4g}; others are lower"
    if in_layer:
        _, n, worth = in_layer
        return (
            f"each row is in order, but over the whole layer your {n} lowest scores include a weight whose true score "
            f"is {worth:.4g}, and others are lower: rows must keep one scale"
        )
    return None


def _too_early(got: Tensor, expected: Tensor) -> tuple[int, int, float] | None:
    """The first group (G, S) in which other entries are the lowest: group, their number, and the value of the last.

    Ties, and near ties of float32, may fall either way: we compare the values that are removed, not the sets.
    """
    order = got.argsort(dim=1, stable=True)
    dropped, least = expected.gather(1, order).cumsum(1), expected.sort(dim=1).values.cumsum(1)
    early = (dropped > least + 1e-5 * expected.abs().amax(dim=1, keepdim=True)).nonzero().tolist()
    if not early:
        return None
    group, last = early[0]
    return group, last + 1, expected[group, order[group, last]].item()


def _score_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[4.0, -3.0, 2.0, 1.0], [-1.0, 2.0, 3.0, -4.0], [0.5, 6.0, -5.0, 0.25]])
    inputs = torch.tensor([[3.0, 0.0, 1.0, 6.0], [4.0, 1.0, 0.0, 8.0]])
    random_weight = torch.randn(37, 96, generator=generator)
    random_inputs = torch.randn(50, 96, generator=generator) * torch.rand(96, generator=generator)
    dead = random_inputs.clone()
    dead[:, 10] = 0
    return [
        Case("a 3 × 4 layer worked by hand, one large input", (weight, inputs)),
        Case("37 outputs, 96 inputs, 50 tokens", (random_weight, random_inputs)),
        Case("an input that is always zero", (random_weight, dead)),
        Case(
            "a square weight, transposed and not contiguous",
            (torch.randn(12, 12, generator=generator).T, random_inputs[:, :12]),
        ),
        Case("as many tokens as inputs", (random_weight[:, :20], random_inputs[:20, :20])),
    ]


def _library(weight: Tensor, inputs: Tensor) -> Tensor:
    from course_lib.pruning.layerwise.gram import Gram
    from course_lib.pruning.methods.wanda import Wanda

    gram = Gram(inputs.shape[1], needs="diagonal")
    gram.add(inputs)
    return Wanda().score(weight, gram)


def _over_rows(score: Tensor, order: float) -> Tensor:
    return score / torch.linalg.vector_norm(score, order, dim=1, keepdim=True)


SCORE = Exercise(
    id="wanda.score",
    title="The Wanda score",
    difficulty=1,
    minutes=5,
    points=2,
    reference=lambda weight, inputs: weight.abs() * inputs.norm(dim=0),
    cases=_score_cases,
    agree=_agree_on_ranks,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("root mean square", lambda w, x: w.abs() * x.square().mean(dim=0).sqrt()),
        Variant("squared throughout", lambda w, x: w.square() * x.square().sum(dim=0)),
        Variant("float64", lambda w, x: w.double().abs() * x.double().norm(dim=0)),
        Variant("in place", lambda w, x: w.abs_().mul_(x.norm(dim=0))),
    ),
    hints=(
        "With W_ij set to zero, output i of token t changes by −W_ij X_tj. What is the norm of this change over all t?",
        "The norm over tokens separates into a factor that depends on the weight alone and another for input j.",
        "Each input feature has one such factor. Which axis of inputs, (N, I), counts the tokens?",
    ),
)
