"""The exercise wanda.interval, "How sure is an accuracy?": its cases and its named mistakes."""

import math
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


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
    from course_lib.lessons.wanda.accuracies import normal

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
        Case("a drawn count", (int(torch.randint(40, 360, (), generator=generator)), 400)),
    ],
    mistakes=(
        Mistake(
            "standard deviation of one answer",
            "sqrt(p(1 − p)) is the spread of a single answer. The mean of n answers spreads sqrt(n) times less.",
            _with_error(lambda p, n: math.sqrt(p * (1 - p))),
        ),
        Mistake(
            "one standard error",
            "One standard error covers 68 %. For 95 % take 1.96 of them to either side.",
            _times(1.0),
        ),
        Mistake(
            "another multiple",
            "95 % of a normal distribution lie within 1.96 standard errors to either side of the mean, so the whole "
            "interval is 3.92 of them wide; 1.645 would leave out 10 %, and 2 is rounded.",
            _times(2.0),
            also=(_times(1.645), _times(0.98), _times(3.92), _times(2.576)),
        ),
        Mistake(
            "no root",
            "This is the variance of the mean. Its root is the standard error.",
            _with_error(lambda p, n: p * (1 - p) / n),
        ),
        Mistake(
            "another variance",
            "A question that is right with probability p has the variance p(1 − p). It is smaller than p, than 1, and "
            "than the ¼ of the worst case.",
            _with_error(lambda p, n: math.sqrt(p / n)),
            also=(_with_error(lambda p, n: 0.5 / math.sqrt(n)), _with_error(lambda p, n: 1 / math.sqrt(n))),
        ),
        Mistake(
            "another order",
            "The numbers are right, but not in the order (accuracy, lower, upper).",
            lambda k, n: (_interval(k, n)[0], *_interval(k, n)[:0:-1]),
            also=(lambda k, n: (_interval(k, n)[1], _interval(k, n)[0], _interval(k, n)[2]),),
        ),
        Mistake(
            "Wilson's interval",
            "This is Wilson's interval, which is the better one for few questions. The text asks for the normal "
            "approximation, which has the accuracy in its middle.",
            _wilson,
        ),
        Mistake(
            "not all three",
            "Return three numbers: the accuracy, the lower and the upper end of its interval.",
            lambda k, n: _interval(k, n)[1:],
            also=(lambda k, n: (k / n, 1.96 * math.sqrt(k / n * (1 - k / n) / n)),),
        ),
        Mistake(
            "n not under the root",
            "The variance of the mean is p(1 − p) / n; the root is taken of all of it.",
            _with_error(lambda p, n: math.sqrt(p * (1 - p)) / n),
        ),
        Mistake(
            "no fractions",
            "These are per cent, or numbers of questions. Return fractions, such as 0.6.",
            lambda k, n: tuple(100 * x for x in _interval(k, n)),
            also=(lambda k, n: tuple(n * x for x in _interval(k, n)),),
        ),
    ),
    also_right=(
        Variant("as a list", lambda k, n: list(_interval(k, n))),
        Variant("with n − 1", _with_error(lambda p, n: math.sqrt(p * (1 - p) / (n - 1)))),
        Variant("in torch", lambda k, n: torch.tensor(_interval(k, n), dtype=torch.float64)),
    ),
    hints=(
        "Each question is right with probability p: its variance is p(1 − p).",
        "The mean of n such questions has variance p(1 − p) / n; its root is the standard error.",
    ),
)
