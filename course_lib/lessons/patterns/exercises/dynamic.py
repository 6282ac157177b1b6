"""The exercise patterns.dynamic, "A pattern that depends on the input": its cases and its named mistakes.

Dimension key: I inputs (columns).
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes


def _keep_inputs(inputs: Tensor, score: Tensor, k: int) -> Tensor:
    keep = torch.zeros_like(inputs, dtype=torch.bool).scatter(1, score.topk(k, dim=1).indices, True)
    return inputs * keep


def _dynamic(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs, inputs.abs(), k), weight)


def _dynamic_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
    inputs = torch.tensor([[1.0, -3.0, 2.0], [4.0, 1.0, 0.5]])
    return [
        Case("two tokens by hand, one input each", (weight, inputs, 1)),
        Case("17 tokens, 40 inputs, ten kept", (randn(generator, 24, 40), randn(generator, 17, 40), 10)),
        Case("equal numbers of tokens, inputs and outputs", (randn(generator, 12, 12), randn(generator, 12, 12), 5)),
        Case("all kept", (randn(generator, 8, 5), randn(generator, 3, 5), 5)),
        Case("tied inputs with equal columns: one of them is kept", _tied(generator, 9, 4)),
        Case("many tied inputs: three of them are kept", _tied(generator, 7, 11, 3)),
    ]


def _tied(generator: torch.Generator, n_tokens: int, n_inputs: int, k: int = 1) -> tuple[Tensor, Tensor, int]:
    """All inputs of a token are equal, and so are all columns, so that any choice gives the same output."""
    column, size = randn(generator, 6, 1), randn(generator, n_tokens, 1).round() + 0.5
    return column.repeat(1, n_inputs), size.repeat(1, n_inputs), k


def _by_threshold(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    size = inputs.abs()
    return linear(inputs * (size >= size.sort(dim=1, descending=True).values[:, k - 1 : k]), weight)


def _above_the_next(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    """Above the largest removed value; if all are kept, above a negative number."""
    size = inputs.abs()
    order = torch.nn.functional.pad(size.sort(dim=1, descending=True).values, (0, 1), value=-1.0)
    return linear(inputs * (size > order[:, k : k + 1]), weight)


def _largest_of_all(inputs: Tensor, n: int) -> Tensor:
    keep = torch.zeros(inputs.numel(), dtype=torch.bool)
    return inputs * keep.index_fill(0, inputs.abs().flatten().topk(n).indices, True).reshape(inputs.shape)


def _over_tokens(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs.T, inputs.T.abs(), k).T, weight)


def _removed(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(inputs - _keep_inputs(inputs, inputs.abs(), k), weight)


def _library(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    from course_lib.sparsity.patterns import Unstructured

    return linear(inputs * Unstructured(1 - k / inputs.shape[1]).keep(inputs.abs()), weight)


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
    library=_library,
    trivial=(
        Trivial("using the first k inputs", lambda weight, x, k: x[:, :k] @ weight[:, :k].T),
        Trivial("using the last k inputs", lambda weight, x, k: x[:, -k:] @ weight[:, -k:].T),
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "token by token",
            lambda w, x, k: torch.stack([w[:, i] @ t[i] for t, i in zip(x, x.abs().topk(k).indices, strict=True)]),
        ),
        Variant("squares", lambda w, x, k: _keep_inputs(x, x.square(), k) @ w.T),
        Variant("float64", lambda w, x, k: _dynamic(w.double(), x.double(), k)),
    ),
    hints=(
        "inputs.abs().topk(k, dim=1).indices contains k columns per token.",
        "Start with a mask of False, scatter True along dim 1, and multiply the inputs by it.",
        "The product of a linear layer is inputs @ weight.T.",
    ),
)
