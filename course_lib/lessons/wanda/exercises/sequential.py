"""The exercise wanda.sequential, "One layer after the other": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.wanda.exercises.common import keep_in_rows


def _prune(weight: Tensor, inputs: Tensor, sparsity: float) -> Tensor:
    return weight * keep_in_rows(weight.abs() * inputs.norm(dim=0), sparsity)


def _sequential(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> tuple[Tensor, Tensor]:
    first = _prune(first, inputs, sparsity)
    return first, _prune(second, torch.relu(inputs @ first.T), sparsity)


def _sequential_cases(generator: torch.Generator) -> list[Case]:
    def layers(hidden: int, width: int, out: int, tokens: int, sparsity: float) -> tuple:
        scale = torch.rand(width, generator=generator) * 3
        return (
            torch.randn(hidden, width, generator=generator),
            torch.randn(out, hidden, generator=generator),
            torch.randn(tokens, width, generator=generator) * scale,
            sparsity,
        )

    return [
        Case("10 inputs, 24 neurons, 20 outputs, half leaves", layers(24, 10, 20, 30, 0.5)),
        Case("70 % leaves", layers(40, 20, 30, 50, 0.7)),
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
    mistakes=(
        Mistake(
            "dense activations for the second layer",
            "The second layer was scored with what the dense first layer gives. After pruning it sees something else.",
            lambda a, b, x, s: (_prune(a, x, s), _prune(b, torch.relu(x @ a.T), s)),
        ),
        Mistake(
            "magnitude for the second layer",
            "The second layer was pruned without its inputs.",
            lambda a, b, x, s: (_prune(a, x, s), b * keep_in_rows(b.abs(), s)),
        ),
        Mistake(
            "nonlinearity forgotten",
            "The second layer reads relu(X W₁ᵀ), not X W₁ᵀ.",
            lambda a, b, x, s: (_prune(a, x, s), _prune(b, x @ _prune(a, x, s).T, s)),
        ),
        Mistake(
            "second layer left dense",
            "Both layers are to be pruned.",
            lambda a, b, x, s: (_prune(a, x, s), b),
        ),
    ),
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
        "Prune the first layer. What does it give now, for the same inputs?",
        "hidden = relu(inputs @ first_pruned.T), and the second layer's score uses the norms of hidden.",
    ),
)
