"""The exercise capstone.ratio, "How many windows are enough?": its cases and its named mistakes.

Dimension key: N windows.
"""

from math import ceil, log, log2
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

CLEAR, MOST = 0.1, 4000  # distance of a number of windows from a whole number, and the largest one


def _windows_needed(losses: Tensor, dense: Tensor, factor: float) -> tuple[int, int]:
    """2 s / √n ≤ log factor, so n ≥ (2 s / log factor)². Of independent windows the variances of both models add up."""
    differences = losses.double() - dense.double()
    paired = differences.var()
    independent = losses.double().var() + dense.double().var()
    reach = log(factor)
    n_errors = 2
    counts = [(n_errors / reach) ** 2 * float(variance) for variance in (paired, independent)]
    least = 2
    return tuple(max(least, ceil(count)) for count in counts)


def is_clear(losses: Tensor, dense: Tensor, factor: float) -> bool:
    """Whether rounding of float32 cannot change the answer."""
    variances = (losses.double() - dense.double()).var(), losses.double().var() + dense.double().var()
    counts = [(2 / log(factor)) ** 2 * float(variance) for variance in variances]
    return all(3 < count < MOST and CLEAR < count % 1 < 1 - CLEAR for count in counts)


def _cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, factor: float, spread: float, hard: float = 0.6, more: float = 0.3) -> tuple[Any, ...]:
        """Windows that are hard or easy for both models."""
        while True:
            dense = 3 + hard * randn(generator, n)
            given = dense + more + spread * randn(generator, n), dense, factor
            if is_clear(*given):
                return given

    dense = torch.tensor([2.0, 3.0, 4.0, 3.0])
    return [
        Case("4 windows by hand: differences ¼, ½, ¼, 0", (dense + torch.tensor([0.25, 0.5, 0.25, 0.0]), dense, 1.1)),
        Case("8 windows, to within 5 %", drawn(8, 1.05, 0.08)),
        Case("20 windows, to within 2 %", drawn(20, 1.02, 0.05, 0.2)),
        Case("a large loss increase, to a factor of 1.5", drawn(12, 1.5, 0.6, 1.5, 2.0)),
        Case("a factor of 2", drawn(6, 2.0, 1.2, 3.0)),
        Case("windows that are equally hard", drawn(30, 1.03, 0.3, 0.05)),
        Case("two windows", drawn(2, 1.1, 0.2)),
        Case("the same difference in every window", (dense + 0.5, dense, 1.1)),
    ]


def _library(losses: Tensor, dense: Tensor, factor: float) -> tuple[int, int]:
    from course_lib.lessons.capstone.methods import windows_needed

    return windows_needed(losses, dense, factor)


RATIO = Exercise(
    id="capstone.ratio",
    title="How many windows are enough?",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_windows_needed,
    cases=_cases,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_windows_needed),
    also_right=(
        Variant("one window more at a time", lambda *given: _counting(*given)),
        Variant("by covariance", lambda *given: _by_covariance(*given)),
    ),
    hints=(
        "The ends of the interval are exp(mean ± 2 se). They are a factor of exp(2 se) away from the ratio, so how "
        "large may se be?",
        "With n windows se is s / √n. Solve 2 s / √n ≤ log(factor) for n, and round up.",
        "As pairs, s² is the variance of the differences. For independent windows the variance of the difference is "
        "the sum of both models' variances.",
    ),
)


def _counting(losses: Tensor, dense: Tensor, factor: float) -> list[int]:
    found = []
    for variance in ((losses - dense).double().var(), losses.double().var() + dense.double().var()):
        n = 2
        while 2 * float(variance / n) ** 0.5 > log(factor):
            n += 1
        found.append(n)
    return found


def _by_covariance(losses: Tensor, dense: Tensor, factor: float) -> Tensor:
    covariance = torch.cov(torch.stack([losses, dense]).double())
    independent = covariance.trace()
    variances = torch.stack([independent - 2 * covariance[0, 1], independent])
    return (4 * variances / log(factor) ** 2 - 1e-9).ceil().clamp(min=2).long()
