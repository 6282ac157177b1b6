"""The exercise classic.scale, "What the inverse costs": its cases and its named mistakes.

Dimension key: d weights.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

SCALE = Exercise(
    id="classic.scale",
    title="What the inverse costs",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda d, n, size: (size * d**2, 4 * n * d**2),
    cases=lambda generator: [
        Case("ten weights, three gradients, by hand", (10, 3, 4)),
        Case("a MONK's network, 58 weights, 124 patterns, float64", (58, 124, 8)),
        Case("a row of 576 weights and 2048 tokens", (576, 2048, 4)),
        Case("all weights in the blocks of the default model", (106_168_320, 1000, 2)),
        Case(
            "a drawn number of weights, and of gradients",
            (*torch.randint(100, 9000, (2,), generator=generator).tolist(), 4),
        ),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("as a list of floats", lambda d, n, size: [float(size * d * d), 4.0 * n * d * d]),
        Variant(
            "with the lower-order terms",
            lambda d, n, size: (size * d * d, n * (4 * d * d)),
        ),
    ),
    hints=(
        "How many numbers are in a matrix of d rows and columns? How many does one rank-one correction touch?",
        "H⁻¹X: d² multiplications and about as many additions. The correction: as many again.",
    ),
)
