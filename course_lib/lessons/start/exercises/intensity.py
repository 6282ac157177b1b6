"""The exercise start.intensity, "Arithmetic intensity": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _intensity(n_outputs: int, n_inputs: int, n_tokens: int, value_bytes: int | float) -> float:
    flops = 2 * n_outputs * n_inputs * n_tokens
    values = n_outputs * n_inputs + n_tokens * (n_outputs + n_inputs)
    return flops / (value_bytes * values)


def _library(n_outputs: int, n_inputs: int, n_tokens: int, value_bytes: int | float) -> float:
    from course_lib.measure.roofline import linear_work

    return linear_work(n_outputs, n_inputs, n_tokens, value_bytes).intensity


def _intensity_cases(generator: torch.Generator) -> list[Case]:
    random_sizes = torch.randint(1, 2000, (2, 3), generator=generator).tolist()
    return [
        Case("2 × 2, one token: 8 FLOPs, 8 numbers of 4 bytes", (2, 2, 1, 4)),
        Case("one token through a layer of SmolLM2's MLP", (1536, 576, 1, 4)),
        Case("512 tokens through the same layer, two bytes per number", (1536, 576, 512, 2)),
        *(Case("random sizes", (*sizes, width)) for sizes, width in zip(random_sizes, (4, 2), strict=True)),
    ]


INTENSITY = Exercise(
    id="start.intensity",
    title="Arithmetic intensity",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_intensity,
    cases=_intensity_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("harmonic form", lambda o, i, n, b: 2 / (b * (1 / n + 1 / o + 1 / i))),
        Variant("as Work", lambda o, i, n, b: torch.tensor(2.0 * o * i * n) / (b * (o * i + n * o + n * i))),
    ),
    hints=(
        "Count two things: the FLOPs, and the numbers that are read or written once.",
        "2 O I N FLOPs. Numbers moved: the weight O I, the inputs N I, the outputs N O.",
    ),
)
