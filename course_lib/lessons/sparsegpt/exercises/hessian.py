"""The exercise sparsegpt.hessian, "A Hessian that can be inverted": its cases and its named mistakes.

Dimension key: I inputs of a layer, N tokens.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import correlated_inputs


def _hessian(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    return gram + torch.diag(damping * diagonal.mean() + (diagonal == 0).to(gram.dtype))


def _hessian_cases(generator: torch.Generator) -> list[Case]:
    # X^T X = [[5, 4], [4, 8]], mean diagonal 6.5
    by_hand = torch.tensor([[1.0, 2.0], [2.0, 1.0], [0.0, -(3.0**0.5)]])
    # X^T X = [[10, -6], [-6, 8]], mean diagonal 9: no input is always zero, although both sums and some entries are 0
    cancelling = torch.tensor([[1.0, 0.0], [-1.0, 2.0], [2.0, -2.0], [-2.0, 0.0]])
    dead = correlated_inputs(generator, 20, 6)
    dead[:, 2] = 0

    def with_a_rare_input(n_tokens: int, n_inputs: int) -> Tensor:
        """Input 1 is nonzero on two tokens in the middle only, where it is small and adds up to 0."""
        x = correlated_inputs(generator, n_tokens, n_inputs)
        x[:, 1] = 0
        x[1:3, 1] = torch.tensor([0.01, -0.01])
        return x

    return [
        Case("three tokens, two inputs, damping 0.1", (by_hand, 0.1)),
        Case("four tokens by hand, inputs that add up to zero without being zero", (cancelling, 0.1)),
        Case("50 tokens, 8 inputs", (with_a_rare_input(50, 8), 0.01)),
        Case("an input that is always zero", (dead, 0.01)),
        Case("as many tokens as inputs", (with_a_rare_input(6, 6), 0.05)),
        Case("fewer tokens than inputs", (with_a_rare_input(4, 7), 0.01)),
    ]


def _library(inputs: Tensor, damping: float) -> Tensor:
    from course_lib.lessons.sparsegpt.plots import damped

    return damped(inputs.T @ inputs, damping)


HESSIAN = Exercise(
    id="sparsegpt.hessian",
    title="A Hessian that can be inverted",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_hessian,
    library=_library,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    cases=_hessian_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in place, on the diagonal", lambda x, d: _hessian_in_place(x, d)),
        Variant("float64", lambda x, d: _hessian(x.double(), d)),
        Variant("token by token", lambda x, d: _hessian_by_token(x, d)),
    ),
    hints=(
        "Three steps: XᵀX; add λ times the mean of its diagonal to the diagonal; add 1 where the diagonal was 0.",
        "gram.diagonal() is a view: gram.diagonal().add_(...) changes the matrix. Take the mean first.",
    ),
)


def _with_ones(inputs: Tensor, damping: float, is_zero: Tensor | None = None) -> Tensor:
    gram = inputs.T @ inputs
    is_zero = gram.diagonal() == 0 if is_zero is None else is_zero
    return gram + torch.diag(damping * gram.diagonal().mean() + is_zero.float())


def _ones_first(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    gram = gram + torch.diag((gram.diagonal() == 0).float())
    return gram + damping * gram.diagonal().mean() * torch.eye(len(gram))


def _ones_last(inputs: Tensor, damping: float) -> Tensor:
    hessian, is_zero = _hessian(inputs, damping), inputs.square().sum(0) == 0
    hessian[is_zero, is_zero] = 1
    return hessian


def _hessian_in_place(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    dead, amount = gram.diagonal() == 0, damping * gram.diagonal().mean()
    gram.diagonal().add_(amount)
    gram[dead, dead] += 1
    return gram


def _hessian_by_token(inputs: Tensor, damping: float) -> Tensor:
    gram = sum(torch.outer(token, token) for token in inputs)
    return gram + torch.eye(len(gram)) * (damping * gram.trace() / len(gram) + (gram.diagonal() == 0))
