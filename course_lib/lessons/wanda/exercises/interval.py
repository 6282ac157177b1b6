"""The exercise wanda.interval, "How sure is an accuracy?": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _interval(n_right: int, n: int) -> tuple[float, float, float]:
    accuracy = n_right / n
    error = math.sqrt(accuracy * (1 - accuracy) / n)
    return accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error


INTERVAL = Exercise(
    id="wanda.interval",
    title="How sure is an accuracy?",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_interval,
    cases=lambda generator: [
        Case("60 of 100", (60, 100)),
        Case("150 of 200", (150, 200)),
        Case("5 of 1000", (5, 1000)),
        Case("a drawn count", (int(torch.randint(1, 399, (), generator=generator)), 400)),
    ],
    mistakes=(
        Mistake(
            "standard deviation of one answer",
            "sqrt(p(1 − p)) is the spread of a single answer. The mean of n answers spreads sqrt(n) times less.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n)) for z in (-1.96, 1.96))),
        ),
        Mistake(
            "one standard error",
            "One standard error covers 68 %. For 95 % take 1.96 of them to either side.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n) / n) for z in (-1, 1))),
        ),
        Mistake(
            "n not under the root",
            "The variance of the mean is p(1 − p) / n; the root is taken of all of it.",
            lambda k, n: (k / n, *(k / n + z * math.sqrt(k / n * (1 - k / n)) / n for z in (-1.96, 1.96))),
        ),
        Mistake(
            "in per cent",
            "Return fractions, such as 0.6, not 60.",
            lambda k, n: tuple(100 * x for x in _interval(k, n)),
        ),
    ),
    also_right=(
        Variant("as a list", lambda k, n: list(_interval(k, n))),
        Variant("in torch", lambda k, n: torch.tensor(_interval(k, n), dtype=torch.float64)),
    ),
    hints=(
        "Each question is right with probability p: its variance is p(1 − p).",
        "The mean of n such questions has variance p(1 − p) / n; its root is the standard error.",
    ),
)
