"""The exercise compress.transfer, "How much transfers": its cases and its named mistakes.

Dimension key: N windows.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Fraction and error up to the rounding of differences of float32 losses, divided by the gain."""
    plain, own, _, dense, dense_own = (losses.double() for losses in case.arguments)
    gain = (plain - own - dense + dense_own).mean().abs().item()
    rounding = 2e-6 * max(losses.abs().max().item() for losses in case.arguments)
    return all_near(got, expected, {"fraction": rounding / gain, "error": rounding / gain})


def _transfer(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> tuple[Tensor, Tensor]:
    plain, own, moved, dense, dense_own = (losses.double() for losses in (plain, own, moved, dense, dense_own))
    control = dense - dense_own
    a, b = plain - moved - control, plain - own - control
    share = a.mean() / b.mean()
    error = _error(a, b)
    return share, error


def _error(a: Tensor, b: Tensor) -> Tensor:
    """The error of mean(a) / mean(b), from the same windows."""
    return (a - a.mean() / b.mean() * b).std() / (len(a) ** 0.5 * b.mean().abs())


def _slope(a: Tensor, b: Tensor) -> Tensor:
    """The slope of the least-squares line through 0."""
    return (a * b).sum() / b.square().sum()


def _slope_with_constant(a: Tensor, b: Tensor) -> Tensor:
    return torch.cov(torch.stack([a, b]))[0, 1] / b.var()


def _in_perplexity(control: bool, mean_first: bool, *losses: Tensor) -> Tensor:
    """The fraction from differences of perplexities, of the means or of each window."""
    plain, own, moved, dense, dense_own = (x.mean().exp() if mean_first else x.exp().mean() for x in losses)
    off = dense - dense_own if control else 0
    return (plain - moved - off) / (plain - own - off)


def _relative(x: Tensor) -> Tensor:
    """The relative error of a mean."""
    return x.std() / len(x) ** 0.5 / x.mean()


def _transfer_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, own: float, share: float, dense: float = 0.1, noise: float = 0.04) -> tuple[Tensor, ...]:
        """Hard and easy windows; gains that differ between windows and are correlated."""

        def around(mean: float, spread: float) -> Tensor:
            return mean + spread * torch.randn(n, generator=generator)

        hard = around(3.0, 0.5)
        plain = hard + around(0.9, 0.2)
        gain, control = around(own, noise), around(dense, noise / 2)
        moved = share * gain + around(0.0, noise / 2)
        return plain, plain - gain - control, plain - moved - control, hard, hard - control

    by_hand = (
        torch.tensor([5.0, 6.0]),
        torch.tensor([4.0, 5.0]),
        torch.tensor([4.25, 5.5]),
        torch.tensor([3.0, 4.0]),
        torch.tensor([2.75, 3.75]),
    )
    return [
        Case("2 windows by hand: 0.5 and 0.25 of 0.75 and 0.75, a half", by_hand),
        Case("40 windows, about four fifths", drawn(40, 0.25, 0.8)),
        Case("12 windows, about a third, a control that gains as much", drawn(12, 0.2, 0.3, dense=0.2)),
        Case("9 windows, nothing transfers", drawn(9, 0.3, 0.0)),
        Case("15 windows, the transferred prompt does harm", drawn(15, 0.4, -0.6, noise=0.08)),
        Case("20 windows, the transferred prompt is better", drawn(20, 0.2, 1.4, dense=0.05)),
        Case("11 windows, the own prompt gains less than the dense model's", drawn(11, -0.3, 0.8)),
    ]


def _library(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.compress.steps import transferred_fraction

    return transferred_fraction(plain, own, moved, dense, dense_own)


TRANSFER = Exercise(
    id="compress.transfer",
    title="How much transfers",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_transfer,
    cases=_transfer_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_transfer),
    also_right=(
        Variant("in plain Python", lambda *given: _in_python(*given)),
        Variant("by variances and a covariance", lambda *given: _by_covariance(*given)),
        Variant("gains as sums", lambda *given: _by_sums(*given)),
    ),
    hints=(
        "A gain is the loss without a prompt minus the loss with it, window by window. You need three gains.",
        "a = gain of the transferred prompt − gain of the dense model, b = gain of the own prompt − gain of the dense "
        "model. The fraction is mean(a) / mean(b).",
        "The error is the standard deviation of a − fraction · b over the windows, divided by √N and by |mean(b)|.",
    ),
)


def _in_python(*given: Tensor) -> tuple[float, float]:
    rows = list(zip(*(losses.tolist() for losses in given), strict=True))
    a = [plain - moved - dense + control for plain, _, moved, dense, control in rows]
    b = [plain - own - dense + control for plain, own, _, dense, control in rows]
    share = sum(a) / sum(b)
    left = [x - share * y for x, y in zip(a, b, strict=True)]
    variance = sum(x * x for x in left) / (len(left) - 1)  # their mean is zero
    return share, (variance / len(left)) ** 0.5 * len(b) / abs(sum(b))


def _by_covariance(*given: Tensor) -> tuple[Tensor, Tensor]:
    plain, own, moved, dense, dense_own = (losses.double() for losses in given)
    a, b = plain - moved - (dense - dense_own), plain - own - (dense - dense_own)
    of_a, of_both, _, of_b = torch.cov(torch.stack([a, b])).flatten()
    share = a.mean() / b.mean()
    return share, ((of_a - 2 * share * of_both + share**2 * of_b) / len(a)).sqrt() / b.mean().abs()


def _by_sums(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> list[Tensor]:
    a, b = (plain + dense_own - x - dense for x in (moved.double(), own.double()))
    share = a.sum() / b.sum()
    return [share, (a - share * b).square().sum().div(len(a) * (len(a) - 1)).sqrt() / b.mean().abs()]
