"""The exercise capstone.ratio, "How much worse, and how sure": its cases and its named mistakes.

Dimension key: D domains, N windows.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

WITHIN = 2.0  # standard errors on either side


def _ratio(losses: Tensor, dense: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An interval of log-perplexities made into one of ratios."""
    differences = losses.double() - dense.double()
    mean = differences.mean(dim=1)
    error = _deviation(differences) / losses.shape[1] ** 0.5
    away = WITHIN * error
    ratio, low, high = mean.exp(), (mean - away).exp(), (mean + away).exp()
    return ratio, low, high


def _deviation(values: Tensor) -> Tensor:
    """NaN of a single one, without the warning that `std` gives."""
    return (values - values.mean(dim=1, keepdim=True)).square().sum(dim=1).div(torch.tensor(values.shape[1] - 1)).sqrt()


def _own(losses: Tensor) -> Tensor:
    """The standard error of one model's own mean."""
    return losses.double().std(dim=1) / losses.shape[1] ** 0.5


def _perplexities(losses: Tensor) -> Tensor:
    return losses.double().exp()


def _quotient(mine: Tensor, dense: Tensor) -> Tensor:
    """Of the means of perplexities."""
    return _perplexities(mine).mean(dim=1) / _perplexities(dense).mean(dim=1)


def _spread(values: Tensor) -> Tensor:
    return values.std(dim=1) / values.shape[1] ** 0.5


def _perplexity_error(mine: Tensor, dense: Tensor) -> Tensor:
    return _spread(_perplexities(mine) - _perplexities(dense))


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
    from course_lib.lessons.capstone.methods import ratio_of_perplexities

    return ratio_of_perplexities(mine, dense)


RATIO = Exercise(
    id="capstone.ratio",
    title="How much worse, and how sure",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_ratio,
    cases=_ratio_cases,
    picture=_picture,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_ratio),
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
    factor = (2 * _deviation(mine.double() - dense.double()) / mine.shape[1] ** 0.5).exp()
    return ratio, ratio / factor, ratio * factor
