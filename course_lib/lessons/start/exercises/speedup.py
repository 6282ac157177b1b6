"""The exercise start.speedup, "How fast a part must get": its cases and its named mistakes."""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


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
    mistakes=(
        Mistake(
            "the wrong way round",
            "This takes `goal` for the factor of the part and returns what the whole gains. Here the gain of the whole "
            "is given, and the factor of the part is asked for: solve Amdahl's formula for s.",
            lambda share, goal: 1 / (1 - share + share / goal),
        ),
        Mistake(
            "out of reach is not noticed",
            "Where the rest alone takes longer than the new step may, no factor is enough, and one below 0 means "
            "nothing. Return 0 there, and where nothing at all is left for the part.",
            _reach_forgotten,
            also=(lambda share, goal: share / (1 / goal - (1 - share)),),  # divides by zero at the limit
        ),
        Mistake(
            "infinite where it cannot be done",
            "Right where the goal can be reached. An infinite factor reaches the limit and never more than that; where "
            "no finite factor is enough, 0 is asked for.",
            lambda share, goal: _needed(share, goal) or math.inf,
            also=(lambda share, goal: share / max(1 / goal - (1 - share), 1e-12),),
        ),
        Mistake(
            "the goal itself",
            "The part has to gain more than the whole, unless it is the whole.",
            lambda share, goal: goal,
        ),
        Mistake(
            "as if the part were the whole",
            "Dividing the goal by the share overlooks that the rest takes as long as before.",
            lambda share, goal: goal / share,
        ),
        Mistake(
            "the time that is left",
            "This is the share of the old time that the part may still take. The factor is its old time divided by it.",
            lambda share, goal: 1 / goal - (1 - share),
        ),
        Mistake(
            "one for the part's time",
            "The part took `share` of the old time, not all of it: divide `share` by what it may still take.",
            lambda share, goal: 1 / (1 / goal - (1 - share)) if 1 / goal > 1 - share else 0.0,
        ),
        Mistake(
            "the most there is to gain",
            "This is what the whole gains when the part takes no time. Asked is what the part needs for this goal.",
            lambda share, goal: 1 / (1 - share) if share < 1 else math.inf,
        ),
        Mistake(
            "share and rest swapped",
            "`share` is the part that gets faster; 1 - share takes as long as before.",
            lambda share, goal: (1 - share) / (1 / goal - share) if 1 / goal > share else 0.0,
        ),
    ),
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
