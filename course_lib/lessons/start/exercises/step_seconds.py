"""The exercise start.step_seconds, "The roofline": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.start.two_times import two_times


def _step_cases(generator: torch.Generator) -> list[Case]:
    uniform = torch.rand(2, 2, generator=generator, dtype=torch.float64).tolist()
    memory, arithmetic = ((10**-x, 10**-x * (1.5 + 8 * y)) for x, y in uniform)  # the shorter and the longer time
    return [
        Case("memory decides: 2 GFLOP and 4 GB at 100 GFLOP/s and 10 GB/s", (2e9, 4e9, 1e11, 1e10)),
        Case("arithmetic decides: 200 GFLOP and 1 GB", (2e11, 1e9, 1e11, 1e10)),
        Case("both take equally long", (1e11, 1e10, 1e11, 1e10)),
        Case("random, memory decides", (1e11 * memory[0], 1e10 * memory[1], 1e11, 1e10)),
        Case("random, arithmetic decides", (1e11 * arithmetic[1], 1e10 * arithmetic[0], 1e11, 1e10)),
    ]


def _step_picture(case: Case, got, expected):
    return two_times(*case.arguments, got=got, expected=expected)


STEP_SECONDS = Exercise(
    id="start.step_seconds",
    title="The roofline",
    difficulty=2,
    minutes=8,
    points=2,
    reference=lambda flops, n_bytes, flops_per_second, bytes_per_second: max(
        flops / flops_per_second, n_bytes / bytes_per_second
    ),
    cases=_step_cases,
    picture=_step_picture,
    mistakes=(
        Mistake(
            "sum of the two",
            "Reading and computing go on at the same time. The bound is the longer of the two, not their sum.",
            lambda f, b, fs, bs: f / fs + b / bs,
        ),
        Mistake(
            "the shorter of the two",
            "The step is not done before both are: take the longer time.",
            lambda f, b, fs, bs: min(f / fs, b / bs),
        ),
        Mistake(
            "arithmetic alone",
            "The bytes do not count here. When a token is made one at a time, they are all that counts.",
            lambda f, b, fs, bs: f / fs,
        ),
        Mistake(
            "memory alone",
            "The FLOPs do not count here. For a long prompt they decide.",
            lambda f, b, fs, bs: b / bs,
        ),
        Mistake(
            "rates and amounts swapped",
            "Seconds are an amount divided by a rate: FLOPs by FLOPs a second, bytes by bytes a second.",
            lambda f, b, fs, bs: max(fs / f, bs / b),
        ),
        Mistake(
            "each by the other's rate",
            "FLOPs are divided by FLOPs a second, bytes by bytes a second; here they are crossed.",
            lambda f, b, fs, bs: max(f / bs, b / fs),
        ),
        Mistake(
            "the mean of the two",
            "The step is done when the longer of the two is, not after their mean.",
            lambda f, b, fs, bs: (f / fs + b / bs) / 2,
        ),
        Mistake(
            "amounts times rates",
            "Seconds are an amount divided by a rate.",
            lambda f, b, fs, bs: max(f * fs, b * bs),
        ),
    ),
    also_right=(
        Variant("by comparing with the ridge", lambda f, b, fs, bs: f / fs if f / b > fs / bs else b / bs),
        Variant("a tensor", lambda f, b, fs, bs: torch.tensor([f / fs, b / bs]).max()),
    ),
    hints=(
        "How long would the arithmetic take alone? How long the reading alone?",
        "If the two overlap perfectly, the step takes as long as the slower one.",
    ),
)
