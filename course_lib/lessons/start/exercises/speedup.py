"""The exercise start.speedup, "How fast a part must get": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _speedup_cases(generator: torch.Generator) -> list[Case]:
    shares = (0.3 + 0.6 * torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    between = (0.2 + 0.6 * torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    return [
        Case("half of the time, the whole 4/3 times faster: twice", (0.5, 4 / 3)),
        Case("all of the time, 4 times", (1.0, 4.0)),
        Case("three quarters of the time, 5 times: without it, it would be 4", (0.75, 5.0)),
        Case("a third of the time, 3 times: out of reach", (1 / 3, 3.0)),
        *(Case("random", (p, 1 / (1 - p * (1 - left)))) for p, left in zip(shares, between, strict=True)),
    ]


def _speedup_picture(case: Case, got: object, expected: float) -> "matplotlib.figure.Figure":
    from course_lib.lessons.start.two_times import old_and_new_time

    return old_and_new_time(*case.arguments, got=got, expected=expected)


def _needed(share: float, goal: float) -> float:
    left = 1 / goal - (1 - share)
    return share / left if left > 0 else 0.0


def _reach_forgotten(share: float, goal: float) -> float:
    left = 1 / goal - (1 - share)
    return share / left if left else 0.0


def _library(share: float, goal: float) -> float:
    from course_lib.lessons.start.bounds import factor_needed

    return factor_needed(share, goal)


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
            lambda share, goal: share * goal / (1 - goal + goal * share) if goal * (1 - share) < 1 else 0,
        ),
        Variant("in seconds", lambda share, goal: _in_seconds(100 * share, 100 * (1 - share), 100 / goal)),
    ),
    hints=(
        "Say the step took 1 second. How long may the new one take, and how much of that is already spent on the rest?",
        "The part may take 1 / goal - (1 - share). Before, it took share. And what if nothing is left for it?",
    ),
)


def _in_seconds(part: float, rest: float, allowed: float) -> float:
    return 0.0 if rest >= allowed else part / (allowed - rest)
