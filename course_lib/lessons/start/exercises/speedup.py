"""The exercise start.speedup, "What is left when a part gets faster": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _speedup_cases(generator: torch.Generator) -> list[Case]:
    fractions = (0.05 + 0.9 * torch.rand(2, 3, generator=generator, dtype=torch.float64)).tolist()
    return [
        Case("half of the time, twice as fast: 4/3", (0.5, 2.0)),
        Case("nothing is sped up", (0.0, 8.0)),
        Case("all of it, 4 times", (1.0, 4.0)),
        Case("80 % of the time, free", (0.8, float("inf"))),
        *(Case("random", (share, 1 + 9 * other)) for share, other in zip(*fractions, strict=True)),
    ]


def _speedup_picture(case: Case, got: object, expected: float) -> "matplotlib.figure.Figure":
    from course_lib.lessons.start.two_times import old_and_new_time

    return old_and_new_time(*case.arguments, got=got, expected=expected)


SPEEDUP = Exercise(
    id="start.speedup",
    title="What is left when a part gets faster",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda share, factor: 1 / (1 - share + share / factor),
    cases=_speedup_cases,
    picture=_speedup_picture,
    mistakes=(
        Mistake(
            "the rest forgotten",
            "Only the part that got faster is counted. The other 1 - share of the time is still there.",
            lambda share, factor: factor / share if share else float("inf"),
            also=(lambda share, factor: factor / share,),
        ),
        Mistake(
            "speeds averaged",
            "Speeds do not average by time: add up the times that remain, then divide the old time by the new.",
            lambda share, factor: 1 - share + share * factor if share else 1.0,
        ),
        Mistake(
            "the time that is left",
            "This is the new time as a share of the old. The speed-up is its inverse.",
            lambda share, factor: 1 - share + share / factor,
        ),
        Mistake(
            "the whole sped up",
            "This is the speed-up of the part. The whole gains less, unless share is 1.",
            lambda share, factor: factor,
        ),
        Mistake(
            "share and rest swapped",
            "`share` is the part that gets faster; 1 - share stays as it is.",
            lambda share, factor: 1 / (share + (1 - share) / factor),
        ),
        Mistake(
            "multiplied by the factor",
            "A part that gets s times faster takes its time divided by s.",
            lambda share, factor: 1 / (1 - share + share * factor) if share else 1.0,
        ),
        Mistake(
            "as if it were free",
            "This is the limit for an infinite factor. The faster part still takes share / factor.",
            lambda share, factor: 1 / (1 - share) if share < 1 else float("inf"),
        ),
        Mistake(
            "only what is gained",
            "This is what is gained beyond 1, or saved. The speed-up is the old time divided by the new.",
            lambda share, factor: 1 / (1 - share + share / factor) - 1,
            also=(lambda share, factor: share - share / factor,),
        ),
    ),
    also_right=(
        Variant("one fraction", lambda share, factor: 1 / (1 - share * (1 - 1 / factor))),
        Variant("old time over new time", lambda share, factor: 100 / (100 * (1 - share) + 100 * share / factor)),
    ),
    hints=(
        "Say the step took 1 second. How long does the untouched part take now, and how long the other?",
        "New time = (1 - share) + share / factor. The speed-up is the old time, 1, divided by it.",
    ),
)
