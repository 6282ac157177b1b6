"""The exercise wanda.score, "The Wanda score": its cases and its named mistakes.

Dimension key: N tokens, I inputs of a layer.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _agree_on_ranks(got: Any, expected: Tensor, case: Case) -> str | None:
    """Two scores agree when they rank alike in every row and in the whole layer: one scale, or a square, is free."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    got, expected = got.double(), expected.double()
    if not got.isfinite().all():
        return f"{int((~got.isfinite()).sum())} entries are NaN or infinite"
    in_rows, in_layer = _too_early(got, expected), _too_early(got.reshape(1, -1), expected.reshape(1, -1))
    if in_rows:
        row, n, worth = in_rows
        return f"row {row}: your score drops a weight worth {worth:.4g} among its {n} lowest, too early"
    if in_layer:
        _, n, worth = in_layer
        return (
            f"each row is in order, but over the whole layer your score drops a weight worth {worth:.4g} among the "
            f"{n} lowest, too early: rows must keep one scale"
        )
    return None


def _too_early(got: Tensor, expected: Tensor) -> tuple[int, int, float] | None:
    """The first group (G, S), its number of entries and the worth of the last, where the lowest are others.

    Ties, and near ties of float32, may fall either way: the worth of what is dropped is compared, not the set.
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
        Case("a transposed, non-contiguous weight", (torch.randn(12, 9, generator=generator).T, random_inputs[:, :12])),
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
    mistakes=(
        Mistake(
            "norm over the wrong axis",
            "The norm runs over the features of each token. Wanda needs one number per input feature, over tokens.",
            lambda weight, inputs: weight.abs() * inputs.norm(dim=1),
        ),
        Mistake(
            "squared norm",
            "‖X_j‖² weighs large inputs twice. The output moves by |W_ij| times the norm itself.",
            lambda weight, inputs: weight.abs() * inputs.square().sum(dim=0),
        ),
        Mistake(
            "weight magnitude alone",
            "This ranks like magnitude pruning: the inputs are unused, or one number for all. Take norm(dim=0).",
            lambda weight, inputs: weight.abs(),
        ),
        Mistake(
            "norm of the outputs",
            "This is the norm of what each output gives, one number a row: within a row it changes no ranking. Take "
            "that of each input, one number a column.",
            lambda weight, inputs: weight.abs() * (inputs @ weight.T).norm(dim=0)[:, None],
        ),
        Mistake(
            "each row on a scale of its own",
            "The score was divided by its row's sum, norm or maximum. The norms of the inputs give one scale for the "
            "layer, so that any comparison group can be ranked.",
            lambda weight, inputs: _over_rows(weight.abs() * inputs.norm(dim=0), 1.0),
            also=(
                lambda weight, inputs: _over_rows(weight.abs() * inputs.norm(dim=0), torch.inf),
                lambda weight, inputs: _over_rows(weight.abs() * inputs.norm(dim=0), 2.0),
            ),
        ),
        Mistake(
            "one of the two squared",
            "The weight is squared and the norm is not, so the weight counts twice. Square both or neither.",
            lambda weight, inputs: weight.square() * inputs.norm(dim=0),
        ),
        Mistake(
            "largest value instead of norm",
            "One large token decides here. The norm runs over all tokens.",
            lambda weight, inputs: weight.abs() * inputs.abs().amax(dim=0),
        ),
        Mistake(
            "standard deviation",
            "The mean of the input was taken away. An input that is always large multiplies its weight all the same.",
            lambda weight, inputs: weight.abs() * inputs.std(dim=0, correction=0),
            also=(lambda weight, inputs: weight.abs() * inputs.std(dim=0),),
        ),
        Mistake(
            "one token",
            "Only one token is counted. The norm runs over all of them.",
            lambda weight, inputs: weight.abs() * inputs[-1].abs(),
            also=(lambda weight, inputs: weight.abs() * inputs[0].abs(),),
        ),
        Mistake(
            "divided instead of multiplied",
            "A large input makes a weight matter more: multiply.",
            lambda weight, inputs: weight.abs() / (inputs.norm(dim=0) + 1e-8),
            also=(lambda weight, inputs: weight.abs() / inputs.norm(dim=0),),
        ),
        Mistake(
            "added instead of multiplied",
            "What a weight moves in the output is its product with the input: multiply.",
            lambda weight, inputs: weight.abs() + inputs.norm(dim=0),
        ),
        Mistake(
            "low is keep",
            "The order is turned round: here the weights that matter most have the lowest scores.",
            lambda weight, inputs: -weight.abs() * inputs.norm(dim=0),
        ),
        Mistake(
            "activation alone",
            "Every weight of a column gets the same score, so whole inputs would leave. Multiply by |W_ij|.",
            lambda weight, inputs: inputs.norm(dim=0).expand(weight.shape),
        ),
        Mistake(
            "sign kept",
            "A large negative weight scores lowest here. Take the absolute value of the weight.",
            lambda weight, inputs: weight * inputs.norm(dim=0),
        ),
        Mistake(
            "mean instead of norm",
            "Positive and negative activations cancel in the mean; the norm squares them first.",
            lambda weight, inputs: weight.abs() * inputs.mean(dim=0).abs(),
            also=(
                lambda weight, inputs: weight.abs() * inputs.mean(dim=0),
                lambda weight, inputs: weight.abs() * inputs.sum(dim=0),
            ),
        ),
        Mistake(
            "sum of absolute values",
            "This is the L1 norm of each input. The Euclidean norm is the L2 norm: square, add up, take the root.",
            lambda weight, inputs: weight.abs() * inputs.abs().sum(dim=0),
        ),
    ),
    also_right=(
        Variant("root mean square", lambda w, x: w.abs() * x.square().mean(dim=0).sqrt()),
        Variant("squared throughout", lambda w, x: w.square() * x.square().sum(dim=0)),
        Variant("float64", lambda w, x: w.double().abs() * x.double().norm(dim=0)),
        Variant("in place", lambda w, x: w.abs_().mul_(x.norm(dim=0))),
    ),
    hints=(
        "With W_ij set to zero, output i of token t moves by −W_ij X_tj. What is the norm of these numbers over all t?",
        "inputs has shape (N, I); you need a vector of I numbers: the norm over dim=0.",
        "The vector of norms lines up with the columns of the weight, so broadcasting does the rest.",
    ),
)
