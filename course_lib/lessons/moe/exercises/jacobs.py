"""The exercise moe.jacobs, "Which expert is responsible?": its cases and its named mistakes.

Dimension key: S samples, K experts, O outputs.
"""

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Up to the rounding of the exponents, which are as large as the squares that they are made of."""
    _, outputs, target = case.arguments
    largest = (target.abs().unsqueeze(1) + outputs.abs()).square().sum(-1).amax() / 2
    rounding = 1e-6 * max(1.0, float(largest))
    return all_near(got, expected, {"error": rounding, "responsibilities": rounding})


def _jacobs(prior: Tensor, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    squares = _squares(outputs, target)
    joint = torch.log(prior) - squares / 2  # the logarithm of what each expert adds to the sum, (S, K)
    error = -joint.logsumexp(-1)
    shares = torch.softmax(joint, -1)
    return error, shares


def _squares(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs - target.unsqueeze(1)).pow(2).sum(-1)


def _naive(
    prior: Tensor, outputs: Tensor, target: Tensor, added: float = 0.0, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Exponentials first: all are zero where a target is far. Their sum has a small number added, or is kept above."""
    parts = prior * (-_squares(outputs, target) / 2).exp()
    total = parts.sum(-1, keepdim=True).clamp(min=least) + added
    return -total[:, 0].log(), parts / total


def _from_the_largest(prior: Tensor, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Sample by sample, with the largest exponent taken out."""
    errors, shares = [], []
    for p, o, d in zip(prior, outputs, target, strict=True):
        exponent = torch.stack([a.log() - 0.5 * (d - b) @ (d - b) for a, b in zip(p, o, strict=True)])
        parts = (exponent - exponent.max()).exp()
        errors.append(-(exponent.max() + parts.sum().log()))
        shares.append(parts / parts.sum())
    return torch.stack(errors), torch.stack(shares)


def _by_gradient(prior: Tensor, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Responsibilities are what the error changes by, per unit of the logarithm of a prior."""
    with torch.enable_grad():
        logs = prior.log().requires_grad_()
        error = -(logs - _squares(outputs, target) / 2).logsumexp(1)
        return error.detach(), -torch.autograd.grad(error.sum(), logs)[0]


def _with_cdist(prior: Tensor, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    apart = torch.cdist(target.unsqueeze(1), outputs).squeeze(1)  # (S, K)
    exponent = prior.log() - apart**2 / 2
    log_total = torch.logsumexp(exponent, 1, keepdim=True)
    return -log_total.flatten(), torch.exp(exponent - log_total)


def _jacobs_cases(generator: torch.Generator) -> list[Case]:
    def drawn(samples: int, experts: int, outputs: int, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        prior = (1.5 * torch.randn(samples, experts, generator=generator)).softmax(-1)
        means = spread * torch.randn(samples, experts, outputs, generator=generator)
        return prior, means, torch.randn(samples, outputs, generator=generator)

    half = math.sqrt(2 * math.log(2.0))  # as far as where exp(−½ r²) is ½
    by_hand = torch.tensor([[0.4, 0.6]]), torch.tensor([[[half, 0.0], [0.0, 0.0]]]), torch.zeros(1, 2)
    prior, outputs, target = drawn(6, 4, 3)
    far = prior, outputs, target + 45 * torch.randn(6, 3, generator=generator).sign()
    turned = tuple(tensor.movedim(0, -1).contiguous().movedim(-1, 0) for tensor in drawn(11, 5, 2))
    return [
        Case("1 sample, 2 experts, by hand: −log 0.8; ¼ and ¾ from 0.4 and 0.6", by_hand),
        Case("9 samples, 5 experts, 3 outputs", drawn(9, 5, 3)),
        Case("as many samples as experts as outputs", drawn(4, 4, 4, 0.7)),
        Case("targets that are far from all experts", far),
        Case("one output", drawn(12, 3, 1, 2.0)),
        Case("not contiguous", turned),
    ]


def _library(prior: Tensor, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.moe.classic.errors import mixture, responsibilities

    return mixture(prior, outputs, target), responsibilities(prior, outputs, target)


JACOBS = Exercise(
    id="moe.jacobs",
    title="Which expert is responsible?",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_jacobs,
    cases=_jacobs_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_jacobs),
    also_right=(
        Variant("the largest exponent taken out", _from_the_largest),
        Variant("by the gradient", _by_gradient),
        Variant("cdist", _with_cdist),
        Variant("float64", lambda p, o, d: _jacobs(p.double(), o.double(), d.double())),
    ),
    hints=(
        "Work with exponents: log(p_i exp(−½ r²)) = log p_i − ½ r². Which two functions of these are the error and "
        "the responsibilities?",
        "torch.logsumexp is the logarithm of a sum of exponentials, and softmax divides each of them by their sum. "
        "Both subtract the largest exponent first, so that not all terms become zero.",
        "target[:, None] − outputs is (S, K, O); its squares are summed over the last axis. A target may be far from "
        "all experts: take no exp before the sum, limit nothing and add no small number.",
    ),
)
