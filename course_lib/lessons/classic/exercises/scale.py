"""The exercise classic.scale, "What the inverse costs"; its named mistakes are in scale.md.

Dimension key: d weights.
"""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _library(n_weights: int, n_gradients: int, bytes_per_number: int) -> tuple[int, int]:
    """Bytes of the inverse, and FLOPs: H⁻¹X takes 2 d², the rank-one correction 2 d², once for every gradient."""
    n_entries = n_weights**2
    return bytes_per_number * n_entries, n_gradients * (2 * n_entries + 2 * n_entries)


SCALE = Exercise(
    id="classic.scale",
    title="What the inverse costs",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda d, n, size: (size * d**2, 4 * n * d**2),
    library=_library,
    cases=lambda generator: [
        Case("ten weights, three gradients, by hand", (10, 3, 4)),
        Case("a MONK's network, 58 weights, 124 patterns, float64", (58, 124, 8)),
        Case("a row of 576 weights and 2048 tokens", (576, 2048, 4)),
        Case("all weights in the blocks of the default model", (106_168_320, 1000, 2)),
        Case(
            "random numbers of weights and gradients",
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
        "How many entries does a matrix with d rows and columns have? How many of them change in one correction?",
        "H⁻¹X takes d² multiplications and about as many additions. The correction takes as many again.",
    ),
)
