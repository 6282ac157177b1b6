"""The exercise moe.jacobs, "Which expert was it?": its cases and its named mistakes.

Dimension key: S samples, K experts, O outputs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Answer = tuple[Tensor, Tensor]
Values = Callable[[Tensor, Tensor, Tensor], Tensor]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Up to the rounding of the exponents, which are as large as the squares that they are made of."""
    _, outputs, target = case.arguments
    largest = (target.abs().unsqueeze(1) + outputs.abs()).square().sum(-1).amax() / 2
    rounding = 1e-6 * max(1.0, float(largest))
    return all_near(got, expected, {"error": rounding, "responsibilities": rounding})


def _squares(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs - target.unsqueeze(1)).pow(2).sum(-1)


def _joint(prior: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """The logarithm of what each expert adds to the sum, (S, K)."""
    return torch.log(prior) - _squares(outputs, target) / 2


def _error(prior: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    return -_joint(prior, outputs, target).logsumexp(-1)


def _posterior(prior: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    return torch.softmax(_joint(prior, outputs, target), -1)


def _both(error: Values = _error, shares: Values = _posterior) -> Callable[[Tensor, Tensor, Tensor], Answer]:
    return lambda p, o, d: (error(p, o, d), shares(p, o, d))


_jacobs = _both()


def _of_joint(joint: Values) -> Callable[[Tensor, Tensor, Tensor], Answer]:
    """Both values, with another exponent."""
    return _both(lambda p, o, d: -joint(p, o, d).logsumexp(-1), lambda p, o, d: joint(p, o, d).softmax(-1))


def _naive(p: Tensor, o: Tensor, d: Tensor, added: float = 0.0) -> Answer:
    """Exponentials first: all are zero where a target is far."""
    parts = p * (-_squares(o, d) / 2).exp()
    total = parts.sum(-1, keepdim=True)
    return -(total[:, 0] + added).log(), parts / (total + added)


def _cooperative(p: Tensor, o: Tensor, d: Tensor) -> Tensor:
    return (d - (p.unsqueeze(-1) * o).sum(1)).pow(2).sum(-1)


def _competitive(p: Tensor, o: Tensor, d: Tensor) -> Tensor:
    return (p * _squares(o, d)).sum(-1)


def _nearest(p: Tensor, o: Tensor, d: Tensor) -> Tensor:
    """One for the expert that is nearest, zero for the others."""
    return torch.zeros_like(p).scatter(1, _squares(o, d).argmin(1, keepdim=True), 1.0)


def _added(amount: float, both: bool = True) -> Callable[[Tensor, Tensor, Tensor], Answer]:
    """A small number is added to a sum that may be zero, as people do: in the error alone, or in both results."""
    if both:
        return lambda p, o, d: _naive(p, o, d, amount)
    return lambda p, o, d: (_naive(p, o, d, amount)[0], _posterior(p, o, d))


def _kept_above(least: float, both: bool = True) -> Callable[[Tensor, Tensor, Tensor], Answer]:
    """The sum of exponentials is kept above a small number: in the error alone, or in both results."""

    def answer(p: Tensor, o: Tensor, d: Tensor) -> Answer:
        parts = p * (-_squares(o, d) / 2).exp()
        total = parts.sum(-1, keepdim=True).clamp(min=least)
        return -total[:, 0].log(), parts / total if both else _posterior(p, o, d)

    return answer


def _cut_off(most: float) -> Values:
    """The exponents, in which half of a squared distance is kept below a number."""
    return lambda p, o, d: p.log() - (_squares(o, d) / 2).clamp(max=most)


def _from_the_largest(prior: Tensor, outputs: Tensor, target: Tensor) -> Answer:
    """Sample by sample, with the largest exponent taken out."""
    errors, shares = [], []
    for p, o, d in zip(prior, outputs, target, strict=True):
        exponent = torch.stack([a.log() - 0.5 * (d - b) @ (d - b) for a, b in zip(p, o, strict=True)])
        parts = (exponent - exponent.max()).exp()
        errors.append(-(exponent.max() + parts.sum().log()))
        shares.append(parts / parts.sum())
    return torch.stack(errors), torch.stack(shares)


def _by_gradient(prior: Tensor, outputs: Tensor, target: Tensor) -> Answer:
    """Responsibilities are what the error changes by, per unit of the logarithm of a prior."""
    with torch.enable_grad():
        logs = prior.log().requires_grad_()
        error = -(logs - _squares(outputs, target) / 2).logsumexp(1)
        return error.detach(), -torch.autograd.grad(error.sum(), logs)[0]


def _with_cdist(prior: Tensor, outputs: Tensor, target: Tensor) -> Answer:
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
    title="Which expert was it?",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_jacobs,
    cases=_jacobs_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=(
        Mistake(
            "prior for posterior",
            "The error is right, but the responsibilities are the gate's own probabilities. Now that the target is "
            "known, the experts that are near it are more probable than before.",
            _both(shares=lambda p, o, d: p),
        ),
        Mistake(
            "cooperative error",
            "This is the squared error of the blended answer, equation 1.1. In it each expert makes up for what the "
            "others leave; here every expert has a distance of its own.",
            _both(_cooperative),
            also=(_both(lambda p, o, d: _cooperative(p, o, d) / 2),),
        ),
        Mistake(
            "cooperative error, prior for posterior",
            "Neither is right. The error is that of the blended answer, equation 1.1, in which each expert makes up "
            "for what the others leave. And the responsibilities are the gate's own probabilities: once the target is "
            "known, experts near it are more probable than before.",
            _both(_cooperative, lambda p, o, d: p),
            also=(_both(lambda p, o, d: _cooperative(p, o, d) / 2, lambda p, o, d: p),),
        ),
        Mistake(
            "expected distance",
            "This is the mean of the squared distances, equation 1.2. The mixture error takes exponentials first, adds "
            "them up, and then takes the logarithm.",
            _both(_competitive),
        ),
        Mistake(
            "expected distance, prior for posterior",
            "Neither is right. The error is the mean of the squared distances, equation 1.2, or half of it; the "
            "mixture error takes exponentials, adds them up, and then takes the logarithm. And the responsibilities "
            "are the gate's own probabilities, as if the target were not known.",
            _both(_competitive, lambda p, o, d: p),
            also=(_both(lambda p, o, d: _competitive(p, o, d) / 2, lambda p, o, d: p),),
        ),
        Mistake(
            "logarithm inside the sum",
            "The logarithm was taken of each term and then summed. The logarithm of a sum is not the sum of "
            "logarithms: first add up p_i exp(…), then take it once.",
            _both(lambda p, o, d: -_joint(p, o, d).sum(-1)),
            also=(
                _both(lambda p, o, d: _competitive(p, o, d) / 2),
                _both(lambda p, o, d: -(p * _joint(p, o, d)).sum(-1)),
                _both(lambda p, o, d: -(_posterior(p, o, d) * _joint(p, o, d)).sum(-1)),
            ),
        ),
        Mistake(
            "exponentials of large numbers",
            "Where a target is far from all experts, every exponential is zero, and the logarithm of their sum "
            "infinite. logsumexp and softmax work on the exponents.",
            _naive,
            also=(
                lambda p, o, d: (_naive(p, o, d)[0], _posterior(p, o, d)),
                lambda p, o, d: (_error(p, o, d), _naive(p, o, d)[1]),
            ),
        ),
        Mistake(
            "a small number under the logarithm",
            "A small number was added to the sum of exponentials, or the sum was kept above one. Where a target is far "
            "from all experts, the sum is zero and that number is the result: finite, but wrong. logsumexp and softmax "
            "work on the exponents.",
            _added(1e-9),
            also=(
                *(_added(10.0**-n, both) for n in (6, 7, 8, 9, 10, 12, 15, 16, 20, 30, 38) for both in (True, False)),
                # a smaller number makes no difference whether it is added or the least
                *(_kept_above(10.0**-n, both) for n in (6, 7, 8) for both in (True, False)),
            ),
        ),
        Mistake(
            "distances cut off",
            "Squared distances, or exponents, were kept within a bound. An expert that is farther away than that "
            "counts as if it were at the bound: the results are finite, but wrong. logsumexp and softmax cope with "
            "any exponent.",
            _of_joint(_cut_off(40.0)),
            also=tuple(
                _of_joint(_cut_off(most)) for most in (10.0, 20.0, 25.0, 30.0, 44.0, 50.0, 80.0, 87.0, 88.0, 100.0)
            ),
        ),
        Mistake(
            "half left out",
            "The exponent is −½ ‖d − o‖²: half of the squared distance.",
            _of_joint(lambda p, o, d: p.log() - _squares(o, d)),
            also=(
                _both(lambda p, o, d: -(p.log() - _squares(o, d)).logsumexp(-1)),
                _both(shares=lambda p, o, d: (p.log() - _squares(o, d)).softmax(-1)),
            ),
        ),
        Mistake(
            "distance not squared",
            "The distance itself stands in the exponent. It is squared: the logarithm of a Gaussian.",
            _of_joint(lambda p, o, d: p.log() - _squares(o, d).sqrt() / 2),
            also=(_of_joint(lambda p, o, d: p.log() - _squares(o, d).sqrt()),),
        ),
        Mistake(
            "mean over the outputs",
            "The squares were averaged over the outputs. ‖d − o‖² is their sum.",
            _of_joint(lambda p, o, d: p.log() - (o - d.unsqueeze(1)).pow(2).mean(-1) / 2),
            also=(_of_joint(lambda p, o, d: p.log() - (o - d.unsqueeze(1)).pow(2).mean(-1)),),
        ),
        Mistake(
            "plus in the exponent",
            "The farther an expert is, the more it counts here. The exponent is −½ ‖d − o‖².",
            _of_joint(lambda p, o, d: p.log() + _squares(o, d) / 2),
        ),
        Mistake(
            "likelihood instead of error",
            "The error has the wrong sign: it is minus the logarithm, so that a better mixture has a smaller one.",
            _both(lambda p, o, d: -_error(p, o, d)),
        ),
        Mistake(
            "no logarithm",
            "This is the sum itself. The error is minus its logarithm.",
            _both(lambda p, o, d: (-_error(p, o, d)).exp()),
            also=(_both(lambda p, o, d: -(-_error(p, o, d)).exp()),),
        ),
        Mistake(
            "not divided by the sum",
            "The responsibilities of a sample do not add up to one. Divide each expert's part by the sum of all.",
            _both(shares=lambda p, o, d: _joint(p, o, d).exp()),
        ),
        Mistake(
            "prior left out",
            "All experts count alike before the target is seen. The gate's p_i stands before every exponential.",
            _of_joint(lambda p, o, d: -_squares(o, d) / 2),
            also=(
                _of_joint(lambda p, o, d: -_squares(o, d) / 2 - math.log(p.shape[1])),
                _both(shares=lambda p, o, d: (-_squares(o, d) / 2).softmax(-1)),
                _both(lambda p, o, d: -(-_squares(o, d) / 2).logsumexp(-1)),
            ),
        ),
        Mistake(
            "no logarithm of the prior",
            "p_i stands before the exponential, so inside the exponent it is log p_i.",
            _of_joint(lambda p, o, d: p - _squares(o, d) / 2),
            also=(
                _of_joint(lambda p, o, d: p * -_squares(o, d) / 2),
                _both(shares=lambda p, o, d: (p - _squares(o, d) / 2).softmax(-1)),
            ),
        ),
        Mistake(
            "softmax of the prior",
            "The prior holds probabilities already. A softmax of them makes them nearly equal.",
            _of_joint(lambda p, o, d: p.log_softmax(-1) - _squares(o, d) / 2),
        ),
        Mistake(
            "the nearest expert alone",
            "Only one expert is held responsible, the nearest or the most probable. Each has its share of the sum.",
            _both(shares=_nearest),
            also=(
                _both(lambda p, o, d: _squares(o, d).amin(-1) / 2, _nearest),
                _both(
                    shares=lambda p, o, d: torch.zeros_like(p).scatter(1, _joint(p, o, d).argmax(1, keepdim=True), 1.0)
                ),
                _both(
                    lambda p, o, d: -_joint(p, o, d).amax(-1),
                    lambda p, o, d: torch.zeros_like(p).scatter(1, _joint(p, o, d).argmax(1, keepdim=True), 1.0),
                ),
            ),
        ),
        Mistake(
            "largest term of the sum",
            "The responsibilities are right, but the error is made of the largest term of the sum, or of the nearest "
            "expert, alone. The logarithm is that of the sum over all experts.",
            _both(lambda p, o, d: -_joint(p, o, d).amax(-1)),
            also=(_both(lambda p, o, d: _squares(o, d).amin(-1) / 2),),
        ),
        Mistake(
            "over the samples",
            "The sum runs over the samples. The experts of one sample share it: the second axis.",
            _both(shares=lambda p, o, d: _joint(p, o, d).softmax(0)),
            also=(
                _both(lambda p, o, d: -_joint(p, o, d).logsumexp(0), lambda p, o, d: _joint(p, o, d).softmax(0)),
                _both(lambda p, o, d: -_joint(p, o, d).logsumexp(0)),
            ),
        ),
        Mistake(
            "one error for all samples",
            "The errors of the samples were averaged or added up. Each sample has one.",
            _both(lambda p, o, d: _error(p, o, d).mean()),
            also=(_both(lambda p, o, d: _error(p, o, d).sum()),),
        ),
        Mistake(
            "constant of the Gaussian",
            "The error holds the constant of a Gaussian, ½ log 2π, once or for each output. Equation 1.3 has no "
            "constant.",
            _both(lambda p, o, d: _error(p, o, d) + o.shape[2] / 2 * math.log(2 * math.pi)),
            also=(_both(lambda p, o, d: _error(p, o, d) + math.log(2 * math.pi) / 2),),
        ),
        Mistake(
            "another unit",
            "The error is in bits. Equation 1.3 has the natural logarithm.",
            _both(lambda p, o, d: _error(p, o, d) / math.log(2.0)),
        ),
        Mistake(
            "logarithms of the responsibilities",
            "These are logarithms, or their differences. The responsibilities are probabilities themselves.",
            _both(shares=lambda p, o, d: _joint(p, o, d).log_softmax(-1)),
            also=(_both(shares=_joint),),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the error of each sample, and then the responsibilities.",
            _error,
            also=(_posterior, lambda p, o, d: _jacobs(p, o, d)[::-1]),
        ),
    ),
    also_right=(
        Variant("the largest exponent taken out", _from_the_largest),
        Variant("by the gradient", _by_gradient),
        Variant("cdist", _with_cdist),
        Variant("float64", lambda p, o, d: _jacobs(p.double(), o.double(), d.double())),
    ),
    hints=(
        "Work with exponents: log(p_i exp(−½ r²)) = log p_i − ½ r². Of which two functions of these are the error and "
        "the responsibilities?",
        "torch.logsumexp is the logarithm of a sum of exponentials, and softmax divides each of them by their sum. "
        "Both take the largest exponent out first, so nothing becomes zero.",
        "target[:, None] − outputs is (S, K, O); its squares are summed over the last axis. A target may be far from "
        "all experts: take no exp before the sum, cut nothing off and add no small number.",
    ),
)
