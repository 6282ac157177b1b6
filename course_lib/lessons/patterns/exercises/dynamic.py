"""The exercise patterns.dynamic, "A pattern that depends on the input": its cases and its named mistakes.

Dimension key: I inputs (columns).
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.patterns.exercises.common import randn


def _keep_inputs(inputs: Tensor, worth: Tensor, k: int) -> Tensor:
    keep = torch.zeros_like(inputs, dtype=torch.bool).scatter(1, worth.topk(k, dim=1).indices, True)
    return inputs * keep


def _dynamic(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs, inputs.abs(), k), weight)


def _dynamic_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
    inputs = torch.tensor([[1.0, -3.0, 2.0], [4.0, 1.0, 0.5]])
    return [
        Case("two tokens by hand, one input each", (weight, inputs, 1)),
        Case("17 tokens, 40 inputs, ten stay", (randn(generator, 24, 40), randn(generator, 17, 40), 10)),
        Case("as many tokens as inputs", (randn(generator, 6, 12), randn(generator, 12, 12), 5)),
        Case("all stay", (randn(generator, 8, 5), randn(generator, 3, 5), 5)),
    ]


def _static_inputs(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs, inputs.abs().mean(0).expand_as(inputs), k), weight)


DYNAMIC = Exercise(
    id="patterns.dynamic",
    title="A pattern that depends on the input",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_dynamic,
    cases=_dynamic_cases,
    mistakes=(
        Mistake(
            "one choice for all tokens",
            "The same inputs stay for every token: that is static. Choose for each token from its own values.",
            _static_inputs,
        ),
        Mistake(
            "rank keeps the sign",
            "A large negative activation matters as much as a positive one. Rank by absolute value.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, inputs, k), weight),
        ),
        Mistake(
            "smallest kept",
            "The k smallest activations of each token stayed.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, -inputs.abs(), k), weight),
        ),
        Mistake(
            "chosen by the weight",
            "These inputs have the largest weight columns, whatever the token: that is a static pattern.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, weight.norm(dim=0).expand_as(inputs), k), weight),
        ),
        Mistake(
            "scaled up like dropout",
            "The output is scaled by I / k. What stays is exact here; scaling makes it worse.",
            lambda weight, inputs, k: _dynamic(weight, inputs, k) * inputs.shape[1] / k,
        ),
    ),
    also_right=(
        Variant(
            "token by token",
            lambda w, x, k: torch.stack([w[:, i] @ t[i] for t, i in zip(x, x.abs().topk(k).indices, strict=True)]),
        ),
        Variant("squares", lambda w, x, k: _keep_inputs(x, x.square(), k) @ w.T),
        Variant("float64", lambda w, x, k: _dynamic(w.double(), x.double(), k)),
    ),
    hints=(
        "inputs.abs().topk(k, dim=1).indices holds k columns for each token.",
        "Start from a mask of False, scatter True along dim 1, and multiply the inputs with it.",
        "The product of a linear layer is inputs @ weight.T.",
    ),
)
