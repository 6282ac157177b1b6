"""The exercise start.speedup, "How fast a part must get": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _speedup_cases(generator: torch.Generator) -> list[Case]:
    fractions = (0.3 + 0.6 * torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    between = (0.2 + 0.6 * torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    return [
        Case("half of the time, the whole 4/3 times as fast", (0.5, 4 / 3)),
        Case("all of the time, the whole 4 times as fast", (1.0, 4.0)),
        Case("three quarters of the time, 5 times as fast: out of reach", (0.75, 5.0)),
        Case("a third of the time, 3 times as fast: out of reach", (1 / 3, 3.0)),
        *(Case("random", (p, 1 / (1 - p * (1 - left)))) for p, left in zip(fractions, between, strict=True)),
    ]


def _speedup_picture(case: Case, got: object, expected: float) -> "matplotlib.figure.Figure":
    from course_lib.lessons.start.plots import old_and_new_time

    return old_and_new_time(*case.arguments, got=got, expected=expected)


def _needed(fraction: float, goal: float) -> float:
    left = 1 / goal - (1 - fraction)
    return fraction / left if left > 0 else 0.0


def _library(fraction: float, goal: float) -> float:
    from course_lib.measure.roofline import factor_needed

    return factor_needed(fraction, goal)


def _reach_forgotten(fraction: float, goal: float) -> float:
    left = 1 / goal - (1 - fraction)
    return fraction / left if left else 0.0


SPEEDUP = Exercise(
    id="start.speedup",
    title="How fast a part must get",
    difficulty=3,
    minutes=8,
    points=2,
    reference=_needed,
    cases=_speedup_cases,
    picture=_speedup_picture,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "one fraction",
            lambda fraction, goal: fraction * goal / (1 - goal + goal * fraction) if goal * (1 - fraction) < 1 else 0,
        ),
        Variant("in seconds", lambda fraction, goal: _in_seconds(100 * fraction, 100 * (1 - fraction), 100 / goal)),
    ),
    hints=(
        "Suppose that a step took 1 second. How long may the new step take, and how much of that does the rest need?",
        "The part may take 1 / goal - (1 - fraction) seconds; before, it took fraction. What if no time remains?",
    ),
)


def _in_seconds(part: float, rest: float, allowed: float) -> float:
    return 0.0 if rest >= allowed else part / (allowed - rest)
