"""The exercise compress.transfer, "How much goes over": its cases and its named mistakes.

Dimension key: N windows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Five = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Answer = Callable[..., Any]


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Share and error up to the rounding of differences of float32 losses, divided by the gain."""
    plain, own, _, dense, dense_own = (losses.double() for losses in case.arguments)
    gain = (plain - own - dense + dense_own).mean().abs().item()
    rounding = 2e-6 * max(losses.abs().max().item() for losses in case.arguments)
    return all_near(got, expected, {"share": rounding / gain, "error": rounding / gain})


def _gains(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> tuple[Tensor, Tensor]:
    """Of each window, what the moved and the own prompt win beyond what one wins on the dense model."""
    control = dense - dense_own
    return plain - moved - control, plain - own - control


def _error(a: Tensor, b: Tensor) -> Tensor:
    """Of mean(a) / mean(b), from the same windows."""
    return (a - a.mean() / b.mean() * b).std() / (len(a) ** 0.5 * b.mean().abs())


def _doubled(given: tuple[Tensor, ...]) -> list[Tensor]:
    return [losses.double() for losses in given]


def _of(gains: Five) -> Answer:
    """The answer from other gains."""

    def answer(*given: Tensor) -> tuple[Tensor, Tensor]:
        a, b = gains(*_doubled(given))
        return a.mean() / b.mean(), _error(a, b)

    return answer


def _shared(share: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Another share of the right gains, with the right error."""

    def answer(*given: Tensor) -> tuple[Tensor, Tensor]:
        a, b = _gains(*_doubled(given))
        return share(a, b), _error(a, b)

    return answer


def _with_error(error: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """The right share with another error: (gains of the moved, gains of the own) -> a number."""

    def answer(*given: Tensor) -> tuple[Tensor, Tensor]:
        a, b = _gains(*_doubled(given))
        return a.mean() / b.mean(), error(a, b)

    return answer


def _around(share: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Another share of the right gains, with the error around it."""

    def answer(*given: Tensor) -> tuple[Tensor, Tensor]:
        a, b = _gains(*_doubled(given))
        return share(a, b), (a - share(a, b) * b).std() / (len(a) ** 0.5 * b.mean().abs())

    return answer


def _slope(a: Tensor, b: Tensor) -> Tensor:
    """Of the line through 0 and, as near as squares say, the windows."""
    return (a * b).sum() / b.square().sum()


def _slope_with_constant(a: Tensor, b: Tensor) -> Tensor:
    return torch.cov(torch.stack([a, b]))[0, 1] / b.var()


def _in_perplexity(control: bool, mean_first: bool = True) -> Answer:
    """Gains as differences of perplexities, of the means or of each window."""

    def answer(*given: Tensor) -> tuple[Tensor, Tensor]:
        losses = _doubled(given)
        a, b = _gains(*losses) if control else _without_control(*losses)
        of_means = [x.mean().exp() if mean_first else x.exp().mean() for x in losses]
        c, d = _gains(*of_means) if control else _without_control(*of_means)
        return c / d, _error(a, b)

    return answer


def _without_control(
    plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor
) -> tuple[Tensor, Tensor]:
    return plain - moved, plain - own


def _single_errors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Relative errors of both means."""
    return tuple(x.std() / len(x) ** 0.5 / x.mean() for x in (a, b))


def _independent(a: Tensor, b: Tensor) -> Tensor:
    return (a.mean() / b.mean()).abs() * torch.hypot(*_single_errors(a, b))


def _transfer_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, own: float, share: float, dense: float = 0.1, noise: float = 0.04) -> tuple[Tensor, ...]:
        """Windows that are hard or easy; gains that differ from window to window, and go together."""

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
        Case("12 windows, about a third, a control that wins as much", drawn(12, 0.2, 0.3, dense=0.2)),
        Case("9 windows, nothing goes over", drawn(9, 0.3, 0.0)),
        Case("15 windows, the moved prompt does harm", drawn(15, 0.4, -0.6, noise=0.08)),
        Case("20 windows, the moved prompt is better", drawn(20, 0.2, 1.4, dense=0.05)),
        Case("11 windows, the own prompt wins less than the dense model's", drawn(11, -0.3, 0.8)),
    ]


def _library(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.compress.steps.gains import share_that_goes_over

    return share_that_goes_over(plain, own, moved, dense, dense_own)


TRANSFER = Exercise(
    id="compress.transfer",
    title="How much goes over",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_of(_gains),
    cases=_transfer_cases,
    agree=_agree_on_both,
    library=_library,
    mistakes=(
        Mistake(
            "dense control forgotten",
            "What a prompt wins on the dense model was not taken off. That much any model of this text wins, and it "
            "says nothing about the damage that compression did.",
            _of(_without_control),
            also=(
                lambda *given: (_of(_without_control)(*given)[0], _of(_gains)(*given)[1]),
                lambda *given: (_of(_without_control)(*given)[0], torch.zeros(())),
            ),
        ),
        Mistake(
            "control on one side",
            "The gain on the dense model was subtracted from one of the two gains only. It belongs to both, to a and "
            "to b.",
            _of(lambda p, o, m, d, c: (p - m - (d - c), p - o)),
            also=(_of(lambda p, o, m, d, c: (p - m, p - o - (d - c))),),
        ),
        Mistake(
            "control in the mean alone",
            "The share is right. In its error the dense model's gain was taken off as one number, or not at all. It "
            "differs from window to window too: take it off each of them.",
            lambda *given: (_of(_gains)(*given)[0], _error_without_control(*_doubled(given))),
            also=(lambda *given: (_of(_gains)(*given)[0], _of(_without_control)(*given)[1]),),
        ),
        Mistake(
            "control added",
            "The gain of the dense model was added. It is taken off.",
            _of(lambda p, o, m, d, c: (p - m + (d - c), p - o + (d - c))),
        ),
        Mistake(
            "wrong baseline",
            "Not every gain here is that of one model: its loss without a prompt, less its loss with one. Both losses "
            "of a gain come from the compressed model, or both from the dense one.",
            _of(lambda p, o, m, d, c: (d - m, d - o)),
            also=(
                _of(lambda p, o, m, d, c: (p - m, p - d)),
                _of(lambda p, o, m, d, c: (p - m, p - c)),
                _of(lambda p, o, m, d, c: (c - m, c - o)),
                _of(lambda p, o, m, d, c: (p - m - (p - c), p - o - (p - c))),
                _of(lambda p, o, m, d, c: (p - m - (d - o), p - o - (d - o))),
                _of(lambda p, o, m, d, c: (d - m - (d - c), d - o - (d - c))),
            ),
        ),
        Mistake(
            "losses, not gains",
            "The losses themselves were divided. A share is one of gains: of how far the loss falls.",
            _of(lambda p, o, m, d, c: (m, o)),
            also=(
                _of(lambda p, o, m, d, c: (o, m)),
                _of(lambda p, o, m, d, c: (m / p, o / p)),
            ),
        ),
        Mistake(
            "ratio of perplexities",
            "Perplexities were subtracted or divided. What adds up, and can be taken off, are losses, their "
            "logarithms.",
            _in_perplexity(control=True),
            also=(
                _in_perplexity(control=False),
                _in_perplexity(control=True, mean_first=False),
                _in_perplexity(control=False, mean_first=False),
                _shared(lambda a, b: a.mean().exp() / b.mean().exp()),
                _of(lambda *given: tuple(x.exp() for x in _gains(*given))),
                _of(lambda *given: _gains(*(x.exp() for x in given))),
                _of(lambda *given: _without_control(*(x.exp() for x in given))),
            ),
        ),
        Mistake(
            "mean of ratios",
            "A share was computed for each window, and then their mean or median. Where a window gains nearly nothing "
            "its share is anything: divide the means.",
            _shared(lambda a, b: (a / b).mean()),
            also=(
                lambda *given: _of_shares(*_gains(*_doubled(given))),
                _shared(lambda a, b: (a / b).median()),
            ),
        ),
        Mistake(
            "error of the windows' shares",
            "The share is right, and the error is that of another number: the mean of the windows' own shares. Where a "
            "window wins nearly nothing its share is anything. Take the spread of a − share · b.",
            _with_error(lambda a, b: _of_shares(a, b)[1]),
            also=(_with_error(lambda a, b: (a / b).std()),),
        ),
        Mistake(
            "slope of a line",
            "A line was laid through the gains of the windows. It listens most to the windows that win much; the share "
            "is that of all that is won: divide the means.",
            _shared(_slope),
            also=(_shared(_slope_with_constant), _around(_slope), _around(_slope_with_constant)),
        ),
        Mistake(
            "not paired",
            "The errors of the two gains were put together as if they came from different windows. A window that wins "
            "much from one prompt wins much from the other: take the spread of a − share · b.",
            _with_error(_independent),
            also=(
                _with_error(lambda a, b: (a.mean() / b.mean()).abs() * sum(x.abs() for x in _single_errors(a, b))),
                _with_error(lambda a, b: ((a.var() + b.var()) / len(a)).sqrt()),
                _with_error(lambda a, b: ((a.var() + b.var()) / len(a)).sqrt() / b.mean().abs()),
                _with_error(
                    lambda a, b: (
                        ((a.var() + (a.mean() / b.mean()).square() * b.var()) / len(a)).sqrt() / b.mean().abs() * 2**0.5
                    )
                ),
            ),
        ),
        Mistake(
            "as if the own gain were exact",
            "Only the spread of the moved prompt's gain counts here. What it is divided by is measured too, on the "
            "same windows.",
            _with_error(lambda a, b: a.std() / len(a) ** 0.5 / b.mean().abs()),
            also=(_with_error(lambda a, b: a.std() / len(a) ** 0.5),),
        ),
        Mistake(
            "a negative error",
            "The error was divided by the mean of b, which may be negative. Divide by its absolute value: an error is "
            "0 or more.",
            _with_error(lambda a, b: (a - a.mean() / b.mean() * b).std() / (len(a) ** 0.5 * b.mean())),
        ),
        Mistake(
            "spread of a − b",
            "The spread of a − b was taken. That of a − q · b is asked for, with the share q that you found.",
            _with_error(lambda a, b: (a - b).std() / len(a) ** 0.5 / b.mean().abs()),
            also=(_with_error(lambda a, b: (a - b).std() / len(a) ** 0.5),),
        ),
        Mistake(
            "error of a difference",
            "This is the error in nats. Divided by the mean gain of the own prompt it is that of the share.",
            _with_error(lambda a, b: (a - a.mean() / b.mean() * b).std() / len(a) ** 0.5),
        ),
        Mistake(
            "error as a part of the share",
            "This is the error divided by the share, or by the moved prompt's gain. Asked for is that of the share "
            "itself, which is a number for a share of 0 too.",
            _with_error(lambda a, b: _error(a, b) / (a.mean() / b.mean()).abs()),
            also=(_with_error(lambda a, b: (a - a.mean() / b.mean() * b).std() / (len(a) ** 0.5 * a.mean())),),
        ),
        Mistake(
            "half an interval",
            "This is 1.96 or 2 standard errors, half of an interval of 95 per cent. One is asked for.",
            _with_error(lambda a, b: 1.96 * _error(a, b)),
            also=(_with_error(lambda a, b: 2 * _error(a, b)),),
        ),
        Mistake(
            "spread of the windows",
            "This is how far single windows spread. The mean of N of them spreads √N times less.",
            _with_error(lambda a, b: _error(a, b) * len(a) ** 0.5),
        ),
        Mistake(
            "divided by N",
            "The standard deviation was divided by N. The error of a mean of N windows has √N there.",
            _with_error(lambda a, b: _error(a, b) / len(a) ** 0.5),
        ),
        Mistake(
            "the square of the error",
            "This is the square of the standard error. Take its square root.",
            _with_error(lambda a, b: _error(a, b).square()),
        ),
        Mistake(
            "N for N − 1",
            "The spread was taken with N in its denominator. With means taken from the same windows it is N − 1.",
            _with_error(lambda a, b: _error(a, b) * ((len(a) - 1) / len(a)) ** 0.5),
        ),
        Mistake(
            "√(N − 1) for √N",
            "The standard deviation, which has N − 1 in it already, was divided by √(N − 1). It is divided by √N.",
            _with_error(lambda a, b: _error(a, b) * (len(a) / (len(a) - 1)) ** 0.5),
        ),
        Mistake(
            "upside down",
            "This is what the own prompt wins for each unit of the moved one. Divide the moved prompt's gain by the "
            "own one's.",
            _of(lambda *given: _gains(*given)[::-1]),
            also=(_shared(lambda a, b: b.mean() / a.mean()),),
        ),
        Mistake(
            "what is lost on the way",
            "This is what does not go over, as a share or in nats. Asked for is the share that does.",
            _shared(lambda a, b: 1 - a.mean() / b.mean()),
            also=(_shared(lambda a, b: (b - a).mean()), _shared(lambda a, b: (a - b).mean())),
        ),
        Mistake(
            "cut off, or in per cent",
            "A share may lie below 0, where the moved prompt does harm, and above 1, where it is better. It is no per "
            "cent either.",
            _shared(lambda a, b: (a.mean() / b.mean()).clamp(0, 1)),
            also=(
                _shared(lambda a, b: (a.mean() / b.mean()).clamp(min=0)),
                _shared(lambda a, b: (a.mean() / b.mean()).clamp(max=1)),
                _shared(lambda a, b: (a.mean() / b.mean()).abs()),
                lambda *given: tuple(100 * x for x in _of(_gains)(*given)),
                _shared(lambda a, b: 100 * a.mean() / b.mean()),
            ),
        ),
        Mistake(
            "not these two numbers",
            "Two numbers are asked for: first the share, then its standard error.",
            lambda *given: _of(_gains)(*given)[0],
            also=(
                lambda *given: (_of(_gains)(*given)[0], torch.zeros(())),
                lambda *given: _of(_gains)(*given)[::-1],
                lambda *given: tuple(x.mean() for x in _gains(*_doubled(given))),
            ),
        ),
    ),
    also_right=(
        Variant("in numbers of Python", lambda *given: _in_python(*given)),
        Variant("by variances and a covariance", lambda *given: _by_covariance(*given)),
        Variant("gains as sums", lambda *given: _by_sums(*given)),
    ),
    hints=(
        "A gain is how far the loss falls, window by window: without a prompt, less with it. Three gains are needed.",
        "a = gain of the moved prompt − gain on the dense model, b = gain of the own prompt − gain on the dense model. "
        "The share is mean(a) / mean(b).",
        "The error is the standard deviation of a − share · b over the windows, divided by √N and by |mean(b)|.",
    ),
)


def _error_without_control(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> Tensor:
    """That of the right share, from what the prompts win on the compressed model alone."""
    a, b = _gains(plain, own, moved, dense, dense_own)
    moved_gain, own_gain = _without_control(plain, own, moved, dense, dense_own)
    return (moved_gain - a.mean() / b.mean() * own_gain).std() / (len(a) ** 0.5 * b.mean().abs())


def _of_shares(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the windows' shares with its own error."""
    return (a / b).mean(), (a / b).std() / len(a) ** 0.5


def _in_python(*given: Tensor) -> tuple[float, float]:
    rows = list(zip(*(losses.tolist() for losses in given), strict=True))
    a = [plain - moved - dense + control for plain, _, moved, dense, control in rows]
    b = [plain - own - dense + control for plain, own, _, dense, control in rows]
    share = sum(a) / sum(b)
    left = [x - share * y for x, y in zip(a, b, strict=True)]
    variance = sum(x * x for x in left) / (len(left) - 1)  # their mean is zero
    return share, (variance / len(left)) ** 0.5 * len(b) / abs(sum(b))


def _by_covariance(*given: Tensor) -> tuple[Tensor, Tensor]:
    a, b = _gains(*_doubled(given))
    of_a, of_both, _, of_b = torch.cov(torch.stack([a, b])).flatten()
    share = a.mean() / b.mean()
    return share, ((of_a - 2 * share * of_both + share**2 * of_b) / len(a)).sqrt() / b.mean().abs()


def _by_sums(plain: Tensor, own: Tensor, moved: Tensor, dense: Tensor, dense_own: Tensor) -> list[Tensor]:
    a, b = (plain + dense_own - x - dense for x in (moved.double(), own.double()))
    share = a.sum() / b.sum()
    return [share, (a - share * b).square().sum().div(len(a) * (len(a) - 1)).sqrt() / b.mean().abs()]
