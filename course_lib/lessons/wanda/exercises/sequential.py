"""The exercise wanda.sequential, "One layer after the other": its cases and its named mistakes."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.wanda.exercises.common import keep_in_columns, keep_in_layer, keep_in_rows


def _score(weight: Tensor, inputs: Tensor) -> Tensor:
    return weight.abs() * inputs.norm(dim=0)


def _prune(weight: Tensor, inputs: Tensor, sparsity: float) -> Tensor:
    return weight * keep_in_rows(_score(weight, inputs), sparsity)


def _sequential(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
    first = _prune(first, inputs, sparsity)
    return first, _prune(second, torch.relu(inputs @ first.T), sparsity)


def _with(activation: Callable[[Tensor], Tensor]) -> Callable:
    """Return the answer with another nonlinearity between the layers."""

    def pruned(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
        first = _prune(first, inputs, sparsity)
        return first, _prune(second, activation(inputs @ first.T), sparsity)

    return pruned


def _masked(keep: Callable[[Tensor, float], Tensor], score: Callable[[Tensor, Tensor], Tensor] = _score) -> Callable:
    """Return the answer with other masks."""

    def pruned(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
        first = first * keep(score(first, inputs), sparsity)
        hidden = torch.relu(inputs @ first.T)
        return first, second * keep(score(second, hidden), sparsity)

    return pruned


def _sequential_cases(generator: torch.Generator) -> list[Case]:
    def layers(hidden: int, width: int, out: int, tokens: int, sparsity: float) -> tuple:
        scale = torch.rand(width, generator=generator) * 3
        return (
            torch.randn(hidden, width, generator=generator),
            torch.randn(out, hidden, generator=generator),
            torch.randn(tokens, width, generator=generator) * scale,
            sparsity,
        )

    def half_zero(hidden: int, out: int) -> tuple:
        """Like the case by hand, but random: only ReLU makes the first and third neuron of every four zero."""
        near_one = 0.8 + 0.4 * torch.rand(hidden + out, hidden, generator=generator)
        first = torch.stack([by_hand[0][:, 0].repeat(hidden // 4) * near_one[0], 0.01 * near_one[1]], dim=1)
        return first, near_one[hidden:], 0.8 + 0.4 * torch.rand(12, 2, generator=generator), 0.5

    # Each neuron keeps its first weight and gives -0.75, 0.05, -1000, 1 before ReLU: 0, 0.05, 0, 1 after it, so that
    # the first and third weight of each output leave.
    by_hand = (
        torch.tensor([[-0.75, 0.1], [0.05, 0.01], [-1000.0, 1.0], [1.0, 0.1]]),
        torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, -1.0, 3.0, -2.0]]),
        torch.tensor([[1.0, 0.1], [1.0, 0.1]]),
        0.5,
    )
    return [
        Case("2 inputs, 4 neurons, 2 outputs, by hand", by_hand),
        Case("2 inputs, 24 neurons of which half are zero, 6 outputs", half_zero(24, 6)),
        Case("10 inputs, 24 neurons, 20 outputs, half is removed", layers(24, 10, 20, 30, 0.5)),
        Case("70 % is removed", layers(40, 20, 30, 50, 0.7)),
        Case("a square layer", layers(32, 32, 32, 32, 0.6)),
    ]


SEQUENTIAL = Exercise(
    id="wanda.sequential",
    title="One layer after the other",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_sequential,
    cases=_sequential_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "masked in place",
            lambda a, b, x, s: (
                a.masked_fill_(~keep_in_rows(a.abs() * x.norm(dim=0), s), 0),
                _prune(b, torch.nn.functional.linear(x, a).clamp(min=0), s),
            ),
        ),
    ),
    hints=(
        "Prune the first layer. What are its outputs now, for the same inputs?",
        "The second layer receives the outputs of the pruned first layer, after the activation function. Whose norms "
        "belong in the second score?",
    ),
)
