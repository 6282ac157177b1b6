"""The exercise start.intensity, "FLOPs a byte": its cases and its named mistakes.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _intensity(n_outputs: int, n_inputs: int, n_tokens: int, value_bytes: int | float) -> float:
    flops = 2 * n_outputs * n_inputs * n_tokens
    values = n_outputs * n_inputs + n_tokens * (n_outputs + n_inputs)
    return flops / (value_bytes * values)


def _intensity_cases(generator: torch.Generator) -> list[Case]:
    random_sizes = torch.randint(1, 2000, (2, 3), generator=generator).tolist()
    return [
        Case("2 × 2, one token: 8 FLOPs, 8 numbers of 4 bytes", (2, 2, 1, 4)),
        Case("one token through a layer of SmolLM2's MLP", (1536, 576, 1, 4)),
        Case("512 tokens through the same layer, two bytes a number", (1536, 576, 512, 2)),
        *(Case("random sizes", (*sizes, width)) for sizes, width in zip(random_sizes, (4, 2), strict=True)),
    ]


INTENSITY = Exercise(
    id="start.intensity",
    title="FLOPs a byte",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_intensity,
    cases=_intensity_cases,
    mistakes=(
        Mistake(
            "one FLOP a weight",
            "Each weight is multiplied and then added: two FLOPs a token, not one.",
            lambda o, i, n, b: o * i * n / (b * (o * i + n * (o + i))),
        ),
        Mistake(
            "weights only",
            "The inputs must be read and the outputs written too: N (I + O) more numbers cross the bus.",
            lambda o, i, n, b: 2 * o * i * n / (b * o * i),
        ),
        Mistake(
            "weights read for every token",
            "The weight is read once and used for all N tokens. That is why many tokens at once are cheap.",
            lambda o, i, n, b: 2 * o * i * n / (b * n * (o * i + o + i)),
        ),
        Mistake(
            "FLOPs a number",
            "This divides by the count of numbers. Each of them takes value_bytes bytes.",
            lambda o, i, n, b: 2 * o * i * n / (o * i + n * (o + i)),
        ),
        Mistake(
            "inputs or outputs left out",
            "Inputs are read and outputs written: both cross the bus, N I and N O numbers.",
            lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * i)),
            also=(lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * o)),),
        ),
        Mistake(
            "activations of one token",
            "All N tokens have inputs and outputs of their own. Only the weight is counted once.",
            lambda o, i, n, b: 2 * o * i * n / (b * (o * i + o + i)),
        ),
        Mistake(
            "FLOPs of one token",
            "These are the FLOPs of one token over the bytes of all N. Each token multiplies with the whole weight: "
            "2 O I N FLOPs.",
            lambda o, i, n, b: 2 * o * i / (b * (o * i + n * (o + i))),
        ),
        Mistake(
            "bytes a FLOP",
            "This is the inverse: bytes divided by FLOPs.",
            lambda o, i, n, b: b * (o * i + n * (o + i)) / (2 * o * i * n),
        ),
        Mistake(
            "four bytes always",
            "A number takes value_bytes bytes, which is not always 4.",
            lambda o, i, n, b: 2 * o * i * n / (4 * (o * i + n * (o + i))),
        ),
        Mistake(
            "only the weight in bytes",
            "Inputs and outputs also take value_bytes bytes a number.",
            lambda o, i, n, b: 2 * o * i * n / (b * o * i + n * (o + i)),
        ),
    ),
    also_right=(
        Variant("harmonic form", lambda o, i, n, b: 2 / (b * (1 / n + 1 / o + 1 / i))),
        Variant("as Work", lambda o, i, n, b: torch.tensor(2.0 * o * i * n) / (b * (o * i + n * o + n * i))),
    ),
    hints=(
        "Count two things: what is computed, and what crosses the memory bus once.",
        "2 O I N FLOPs. Numbers moved: the weight O I, the inputs N I, the outputs N O.",
    ),
)
