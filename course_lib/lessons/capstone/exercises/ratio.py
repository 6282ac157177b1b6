"""The exercise capstone.ratio, "How much worse, and how sure": its cases and its named mistakes.

Dimension key: D domains, N windows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = Callable[[Tensor, Tensor], Any]
Effect = Callable[[Tensor, Tensor], Tensor]  # (mine, dense) -> a number for each domain
WITHIN = 2.0  # standard errors on either side


def _mean(mine: Tensor, dense: Tensor) -> Tensor:
    return (mine.double() - dense.double()).mean(dim=1)


def _deviation(values: Tensor) -> Tensor:
    """NaN of a single one, without the warning that `std` gives."""
    return (values - values.mean(dim=1, keepdim=True)).square().sum(dim=1).div(torch.tensor(values.shape[1] - 1)).sqrt()


def _error(mine: Tensor, dense: Tensor) -> Tensor:
    return _deviation(mine.double() - dense.double()) / mine.shape[1] ** 0.5


def _own(losses: Tensor) -> Tensor:
    """The standard error of one model's own mean."""
    return losses.double().std(dim=1) / losses.shape[1] ** 0.5


def _with(mean: Effect = _mean, error: Effect = _error, n_errors: float = WITHIN) -> Answer:
    """(ratio, low, high), an interval of log-perplexities made into one of ratios."""

    def answer(losses: Tensor, dense: Tensor) -> tuple[Tensor, ...]:
        middle, away = mean(losses, dense), n_errors * error(losses, dense)
        return middle.exp(), (middle - away).exp(), (middle + away).exp()

    return answer


def _then(change: Callable[[Tensor, Tensor, Tensor], Any], **how: Any) -> Answer:
    return lambda mine, dense: change(*_with(**how)(mine, dense))


def _around(mean: Effect, error: Effect, n_errors: float = WITHIN) -> Answer:
    """As far above as below, with nothing made into a ratio any more."""

    def answer(mine: Tensor, dense: Tensor) -> tuple[Tensor, ...]:
        middle, away = mean(mine, dense), n_errors * error(mine, dense)
        return middle, middle - away, middle + away

    return answer


def _ratios(mine: Tensor, dense: Tensor) -> Tensor:
    """Of each window."""
    return (mine.double() - dense.double()).exp()


def _perplexities(losses: Tensor) -> Tensor:
    return losses.double().exp()


def _quotient(mine: Tensor, dense: Tensor) -> Tensor:
    """Of the means of perplexities."""
    return _perplexities(mine).mean(dim=1) / _perplexities(dense).mean(dim=1)


def _spread(values: Tensor) -> Tensor:
    return values.std(dim=1) / values.shape[1] ** 0.5


def _perplexity_error(mine: Tensor, dense: Tensor) -> Tensor:
    return _spread(_perplexities(mine) - _perplexities(dense))


def _all_windows(mine: Tensor, dense: Tensor) -> tuple[Tensor, ...]:
    """One number for all domains, put in each place."""
    found = _with()(mine.reshape(1, -1), dense.reshape(1, -1))
    return tuple(each.expand(len(mine)) for each in found)


def _unpaired(mine: Tensor, dense: Tensor) -> Tensor:
    return (_own(mine) ** 2 + _own(dense) ** 2).sqrt()


def _added(mine: Tensor, dense: Tensor) -> Tensor:
    return _own(mine) + _own(dense)


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = [f"{name}\ndomain {d}" for name in ("ratio", "low", "high") for d in range(len(expected[0]))]
    mine, right = (torch.cat([torch.as_tensor(each).double() for each in three]) for three in (got, expected))
    return compare_bars(mine, right, tuple(names), "ratio of perplexities")


def _ratio_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_domains: int, n: int, more: float, spread: float = 0.05, hard: float = 0.6) -> tuple[Tensor, Tensor]:
        """Windows that are hard or easy for both; domains that lose differently much."""
        dense = 3 + hard * randn(generator, n_domains, n)
        shift = more * (1 + torch.arange(n_domains))[:, None]
        return dense + shift + spread * randn(generator, n_domains, n), dense

    dense = torch.tensor([[2.0, 3.0, 4.0, 3.0]])
    by_hand = dense + torch.tensor([[0.25, 0.5, 0.25, 0.0]]), dense
    return [
        Case("one domain of 4 windows by hand: the differences are ¼, ½, ¼ and 0", by_hand),
        Case("two domains, 8 windows", drawn(2, 8, 0.12)),
        Case("three domains, 20 windows", drawn(3, 20, 0.3, 0.2)),
        Case("a model that loses four nats", drawn(2, 6, 2.0, 0.4)),
        Case("one that is better than the dense one", drawn(2, 12, -0.05)),
        Case("two windows", drawn(4, 2, 0.2, 0.1)),
        Case("many windows", drawn(1, 300, 0.02, 0.3)),
    ]


def _library(mine: Tensor, dense: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from course_lib.lessons.capstone.steps.ratios import ratio_of_perplexities

    return ratio_of_perplexities(mine, dense)


RATIO = Exercise(
    id="capstone.ratio",
    title="How much worse, and how sure",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_with(),
    cases=_ratio_cases,
    picture=_picture,
    library=_library,
    mistakes=(
        Mistake(
            "errors added",
            "The errors of the two models were added, subtracted or averaged. Both read the same windows, and how hard "
            "a window is drops out of the difference: it is the differences whose spread counts.",
            _with(error=_added),
            also=(_with(error=lambda m, d: (_own(m) - _own(d)).abs()), _with(error=lambda m, d: _added(m, d) / 2)),
        ),
        Mistake(
            "unpaired",
            "This is the error of one of the models, or of two that read different texts. Here window w of one is "
            "window w of the other: take the differences first.",
            _with(error=_unpaired),
            also=(
                _with(error=lambda m, d: _own(m)),
                _with(error=lambda m, d: _own(d)),
                _with(error=lambda m, d: ((m.double().var(dim=1) + d.double().var(dim=1)) / 2 / m.shape[1]).sqrt()),
            ),
        ),
        Mistake(
            "mean of perplexities",
            "Perplexities were averaged, and the hardest window decides nearly alone. The log of a ratio of "
            "perplexities is the mean difference of losses: average first, then exp.",
            _with(mean=lambda m, d: _quotient(m, d).log()),
            also=(
                _around(_quotient, lambda m, d: _quotient(m, d) * _error(m, d)),
                _around(_quotient, lambda m, d: _spread(_ratios(m, d))),
                _around(lambda m, d: (_perplexities(m) - _perplexities(d)).mean(dim=1), _perplexity_error),
            ),
        ),
        Mistake(
            "mean of the windows' ratios",
            "Each window's own ratio was computed, and then their mean. Average the differences of the losses instead, "
            "and take the exponential once.",
            _with(mean=lambda m, d: _ratios(m, d).mean(dim=1).log()),
            also=(_around(lambda m, d: _ratios(m, d).mean(dim=1), lambda m, d: _spread(_ratios(m, d))),),
        ),
        Mistake(
            "spread of the windows",
            "This is how much windows differ, not how sure their mean is: the standard error is the standard deviation "
            "divided by √N.",
            _with(error=lambda m, d: (m.double() - d.double()).std(dim=1)),
        ),
        Mistake(
            "divided by N",
            "The standard deviation was divided by N. The error of a mean of N windows has √N there.",
            _with(error=lambda m, d: (m.double() - d.double()).std(dim=1) / m.shape[1]),
        ),
        Mistake(
            "N in the denominator",
            "The mean was estimated from the same windows, so N − 1 stands in the denominator of the variance.",
            _with(error=lambda m, d: (m.double() - d.double()).std(dim=1, correction=0) / m.shape[1] ** 0.5),
        ),
        Mistake(
            "√(N − 1) for √N",
            "The standard deviation, which has N − 1 in it already, was divided by √(N − 1). It is divided by √N.",
            _with(error=lambda m, d: (m.double() - d.double()).std(dim=1) / (m.shape[1] - 1) ** 0.5),
        ),
        Mistake(
            "not two errors",
            "The interval reaches two standard errors to either side.",
            _with(n_errors=1.0),
            also=(_with(n_errors=1.96), _with(n_errors=3.0), _with(n_errors=4.0)),
        ),
        Mistake(
            "as far above as below",
            "The interval was made around the ratio, with an error that was carried over. Make it around the mean "
            "difference and take exp of both ends: then no ratio can be below 0.",
            _around(lambda m, d: _mean(m, d).exp(), lambda m, d: _mean(m, d).exp() * _error(m, d)),
            also=(
                _around(lambda m, d: _mean(m, d).exp(), _error),
                _around(lambda m, d: _mean(m, d).exp(), lambda m, d: _error(m, d).exp()),
            ),
        ),
        Mistake(
            "nats, not ratios",
            "These are differences of losses. The ratio of two perplexities is exp of that.",
            _around(_mean, _error),
            also=(lambda m, d: (_mean(m, d).exp(), *_around(_mean, _error)(m, d)[1:]),),
        ),
        Mistake(
            "upside down",
            "The dense model was divided by the other one. Above 1 should mean: worse than dense.",
            lambda mine, dense: _with()(dense, mine),
            also=(lambda m, d: tuple(1 / each for each in _with()(m, d)),),
        ),
        Mistake(
            "over the wrong axis",
            "Means were taken over domains, or over all windows of all domains. Each domain has its own ratio, over "
            "its windows, dim=1.",
            lambda mine, dense: _with()(mine.T, dense.T),
            also=(_all_windows, lambda m, d: _with()(m.reshape(1, -1), d.reshape(1, -1))),
        ),
        Mistake(
            "a sum or a median",
            "What stands in the exponent is the mean difference over windows. A sum grows with their number, and of a "
            "median the standard error says nothing.",
            _with(mean=lambda m, d: (m.double() - d.double()).sum(dim=1)),
            also=(_with(mean=lambda m, d: (m.double() - d.double()).median(dim=1).values),),
        ),
        Mistake(
            "quotient of losses",
            "Losses are logarithms already: they are subtracted, not divided.",
            lambda m, d: (m.double().mean(1) / d.double().mean(1), *_with()(m, d)[1:]),
            also=(
                _around(
                    lambda m, d: (m.double() / d.double()).mean(dim=1), lambda m, d: _spread(m.double() / d.double())
                ),
                _with(lambda m, d: m.double().mean(1) / d.double().mean(1)),
            ),
        ),
        Mistake(
            "another logarithm",
            "Losses are in nats, so their perplexity is a power of e.",
            lambda m, d: tuple(2 ** each.log() for each in _with()(m, d)),
            also=(lambda m, d: tuple(10 ** each.log() for each in _with()(m, d)),),
        ),
        Mistake(
            "in another order",
            "Three values in this order: the ratio, the lower end, the upper end.",
            _then(lambda ratio, low, high: (ratio, high, low)),
            also=(
                _then(lambda ratio, low, high: (low, ratio, high)),
                _then(lambda ratio, low, high: (low, high, ratio)),
            ),
        ),
        Mistake(
            "not three values",
            "Three values are asked for, each with a number a domain: the ratio and both ends.",
            _then(lambda ratio, low, high: ratio),
            also=(
                _then(lambda ratio, low, high: (ratio, high - ratio)),
                _then(lambda ratio, low, high: (low, high)),
                _then(lambda ratio, low, high: torch.stack([ratio, low, high])[None]),
                lambda m, d: (_mean(m, d).exp(), _error(m, d)),
                lambda m, d: (_mean(m, d).exp(), _mean(m, d).exp() * _error(m, d)),
            ),
        ),
    ),
    also_right=(
        Variant("window by window", lambda *given: _in_loops(*given)),
        Variant("perplexities, divided", lambda *given: _divided(*given)),
    ),
    hints=(
        "Subtract the dense losses from the others before anything else. What is left is one number for each window.",
        "Their mean is the log of the ratio; its standard error is their standard deviation over √N.",
        "low = exp(mean − 2 · error), high = exp(mean + 2 · error), all along dim=1.",
    ),
)


def _in_loops(mine: Tensor, dense: Tensor) -> tuple[list[float], ...]:
    from math import exp, sqrt
    from statistics import mean, stdev

    found = []
    for ours, theirs in zip(mine.tolist(), dense.tolist(), strict=True):
        more = [a - b for a, b in zip(ours, theirs, strict=True)]
        away = 2 * stdev(more) / sqrt(len(more))
        found.append((exp(mean(more)), exp(mean(more) - away), exp(mean(more) + away)))
    return tuple(map(list, zip(*found, strict=True)))


def _divided(mine: Tensor, dense: Tensor) -> tuple[Tensor, ...]:
    ratio = mine.double().mean(dim=1).exp() / dense.double().mean(dim=1).exp()
    factor = (2 * _error(mine, dense)).exp()
    return ratio, ratio / factor, ratio * factor
