"""The exercise sparsegpt.hessian, "A Hessian that can be inverted": its cases and its named mistakes.

Dimension key: I inputs of a layer, N tokens.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_numbers
from course_lib.lessons.sparsegpt.exercises.common import correlated_inputs


def _hessian(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    return gram + torch.diag(damping * diagonal.mean() + (diagonal == 0).to(gram.dtype))


def _hessian_cases(generator: torch.Generator) -> list[Case]:
    # X^T X = [[5, 4], [4, 8]], mean diagonal 6.5
    by_hand = torch.tensor([[1.0, 2.0], [2.0, 1.0], [0.0, -(3.0**0.5)]])
    # X^T X = [[10, -6], [-6, 8]], mean diagonal 9: no input is silent, though both sums and some tokens are 0
    cancelling = torch.tensor([[1.0, 0.0], [-1.0, 2.0], [2.0, -2.0], [-2.0, 0.0]])
    dead = correlated_inputs(generator, 20, 6)
    dead[:, 2] = 0

    def with_a_rare_input(n_tokens: int, n_inputs: int) -> Tensor:
        """Input 1 is small and not zero at two tokens in the middle, where it adds up to 0."""
        x = correlated_inputs(generator, n_tokens, n_inputs)
        x[:, 1] = 0
        x[1:3, 1] = torch.tensor([0.01, -0.01])
        return x

    return [
        Case("three tokens, two inputs, damping 0.1", (by_hand, 0.1)),
        Case("four tokens by hand, inputs that add up to zero and are not silent", (cancelling, 0.1)),
        Case("50 tokens, 8 inputs", (with_a_rare_input(50, 8), 0.01)),
        Case("an input that is always zero", (dead, 0.01)),
        Case("as many tokens as inputs", (with_a_rare_input(6, 6), 0.05)),
        Case("fewer tokens than inputs", (with_a_rare_input(4, 7), 0.01)),
    ]


HESSIAN = Exercise(
    id="sparsegpt.hessian",
    title="A Hessian that can be inverted",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_hessian,
    picture=lambda case, got, expected: compare_numbers(got, expected),
    cases=_hessian_cases,
    mistakes=(
        Mistake(
            "tokens instead of inputs",
            "X Xᵀ compares tokens. The Hessian has a row for each input: Xᵀ X.",
            lambda x, d: _hessian(x.T, d),
        ),
        Mistake(
            "damping not scaled",
            "λ is a share of the mean diagonal. Taken as it is, it drowns a quiet layer and is lost in a loud one.",
            lambda x, d: x.T @ x + torch.diag(d + (x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "damping on every entry",
            "The damping was added to the whole matrix. It belongs on the diagonal: times torch.eye(I).",
            lambda x, d: x.T @ x + d * x.square().sum(0).mean() + torch.diag((x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "mean over the whole matrix",
            "The mean runs over the diagonal, the squared sizes of the inputs; the other entries may be negative.",
            lambda x, d: x.T @ x + torch.diag(d * (x.T @ x).mean() + (x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "silent inputs forgotten",
            "An input that is always zero needs a 1 on the diagonal: without it the undamped matrix has no inverse.",
            lambda x, d: x.T @ x + d * x.square().sum(0).mean() * torch.eye(x.shape[1]),
        ),
        Mistake(
            "silent by their sum",
            "Inputs whose values add up to zero got the 1. An input is silent when it is zero at every token: look at "
            "the diagonal of XᵀX, a sum of squares.",
            lambda x, d: _with_silent(x, d, x.sum(0) == 0),
        ),
        Mistake(
            "silent by one token",
            "Inputs that are zero at one token got the 1. An input is silent when it is zero at every token.",
            lambda x, d: _with_silent(x, d, x[0] == 0),
            also=(
                lambda x, d: _with_silent(x, d, x[-1] == 0),
                lambda x, d: _with_silent(x, d, (x == 0).any(0)),
            ),
        ),
        Mistake(
            "1 for every input",
            "Every input got the 1 of the silent ones: only where the diagonal of XᵀX is 0.",
            lambda x, d: _with_silent(x, d, torch.ones(x.shape[1], dtype=torch.bool)),
        ),
        Mistake(
            "sum or maximum instead of the mean",
            "λ is multiplied by the mean of the diagonal: its trace is I times as large, and its largest entry may be "
            "one loud input.",
            lambda x, d: _with_silent(x, d * x.shape[1]),
            also=(lambda x, d: x.T @ x + torch.diag(d * x.square().sum(0).max() + (x.square().sum(0) == 0).float()),),
        ),
        Mistake(
            "each input its own share",
            "Every diagonal entry grew by λ times itself. All get the same amount, so that quiet directions are damped "
            "too: λ times the mean.",
            lambda x, d: x.T @ x + torch.diag(d * x.square().sum(0) + (x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "mean over the inputs that are not silent",
            "The mean leaves silent inputs out. The text asks for the mean of the whole diagonal, zeros included.",
            lambda x, d: _with_silent(x, d * x.shape[1] / int((x != 0).any(0).sum())),
        ),
        Mistake(
            "inputs centred",
            "The mean of each input was taken away: that is a covariance. The layer reads the inputs as they are.",
            lambda x, d: _with_silent(x - x.mean(0), d, (x == 0).all(0)),
        ),
        Mistake(
            "the diagonal alone",
            "The entries beside the diagonal are gone: they say which inputs can make up for which.",
            lambda x, d: torch.diag(_hessian(x, d).diagonal()),
        ),
        Mistake(
            "silent inputs before the mean",
            "The 1 of silent inputs was counted in the mean of the diagonal, as in the public code; the text asks for "
            "the mean of XᵀX alone.",
            lambda x, d: _silent_first(x, d),
        ),
        Mistake(
            "silent inputs set to 1",
            "A silent input gets 1 more, on top of the damping that every input gets.",
            lambda x, d: _silent_last(x, d),
        ),
        Mistake(
            "twice the Gram matrix",
            "The 2 of the second derivative was kept. It changes no order and no update; the text asks for XᵀX.",
            lambda x, d: (
                2 * (x.T @ x) + torch.diag(2 * d * x.square().sum(0).mean() + (x.square().sum(0) == 0).float())
            ),
            also=(lambda x, d: _hessian(2**0.5 * x, d),),
        ),
        Mistake(
            "no damping",
            "With fewer tokens than inputs XᵀX is singular. Add λ times the mean of its diagonal.",
            lambda x, d: x.T @ x + torch.diag((x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "averaged over tokens",
            "This is XᵀX / N. The text asks for the sum; with a mean, the 1 of silent inputs counts N times as much.",
            lambda x, d: (
                x.T @ x / len(x) + torch.diag(d * x.square().sum(0).mean() / len(x) + (x.square().sum(0) == 0).float())
            ),
        ),
    ),
    also_right=(
        Variant("in place, on the diagonal", lambda x, d: _hessian_in_place(x, d)),
        Variant("float64", lambda x, d: _hessian(x.double(), d)),
        Variant("token by token", lambda x, d: _hessian_by_token(x, d)),
    ),
    hints=(
        "Three steps: XᵀX; λ times the mean of its diagonal on the diagonal; 1 more where the diagonal was 0.",
        "gram.diagonal() is a view: gram.diagonal().add_(...) changes the matrix. Take the mean first.",
    ),
)


def _with_silent(inputs: Tensor, damping: float, silent: Tensor | None = None) -> Tensor:
    gram = inputs.T @ inputs
    silent = gram.diagonal() == 0 if silent is None else silent
    return gram + torch.diag(damping * gram.diagonal().mean() + silent.float())


def _silent_first(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    gram = gram + torch.diag((gram.diagonal() == 0).float())
    return gram + damping * gram.diagonal().mean() * torch.eye(len(gram))


def _silent_last(inputs: Tensor, damping: float) -> Tensor:
    hessian, silent = _hessian(inputs, damping), inputs.square().sum(0) == 0
    hessian[silent, silent] = 1
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
