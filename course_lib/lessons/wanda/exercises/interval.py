"""The exercise wanda.interval, "How sure is an accuracy?": its cases and its named mistakes."""

import math
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _interval(n_right: int, n: int) -> tuple[float, float, float]:
    accuracy = n_right / n
    error = math.sqrt(accuracy * (1 - accuracy) / n)
    return accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error


def _agree_with_n_or_one_less(got: Any, expected: tuple, case: Case) -> str | None:
    """The variance of a single answer may be estimated with n or with n − 1; the library takes n − 1."""
    n = case.arguments[1]
    accuracy, *ends = expected
    wider = (accuracy, *(accuracy + (end - accuracy) * math.sqrt(n / (n - 1)) for end in ends))
    return close(got, wider) and close(got, expected)


def _wilson(n_right: int, n: int) -> tuple[float, float, float]:
    z, accuracy = 1.96, n_right / n
    middle = (accuracy + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(accuracy * (1 - accuracy) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return accuracy, middle - half, middle + half


def _library(n_right: int, n: int) -> tuple[float, float, float]:
    from course_lib.lessons.wanda.plots import normal

    return normal(n_right, n)


def _times(z: float) -> Callable:
    return lambda k, n: (k / n, *(k / n + sign * z * math.sqrt(k / n * (1 - k / n) / n) for sign in (-1, 1)))


def _with_error(error: Callable[[float, int], float]) -> Callable:
    return lambda k, n: (k / n, k / n - 1.96 * error(k / n, n), k / n + 1.96 * error(k / n, n))


INTERVAL = Exercise(
    id="wanda.interval",
    title="How sure is an accuracy?",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_interval,
    library=_library,
    agree=_agree_with_n_or_one_less,
    cases=lambda generator: [
        Case("60 of 100", (60, 100)),
        Case("150 of 200", (150, 200)),
        Case("5 of 1000", (5, 1000)),
        Case("a random count", (int(torch.randint(40, 360, (), generator=generator)), 400)),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("as a list", lambda k, n: list(_interval(k, n))),
        Variant("with n − 1", _with_error(lambda p, n: math.sqrt(p * (1 - p) / (n - 1)))),
        Variant("in torch", lambda k, n: torch.tensor(_interval(k, n), dtype=torch.float64)),
    ),
    hints=(
        "Each question is right with probability p, so its variance is p(1 − p).",
        "What is the variance of the mean of n independent questions? The standard error is its root.",
    ),
)
