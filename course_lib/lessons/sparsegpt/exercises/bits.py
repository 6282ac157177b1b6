"""The exercise sparsegpt.bits, "Bits per weight": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _bits(sparsity: float, value_bits: int, group_size: int, grid_bits: int) -> float:
    return (1 if sparsity else 0) + (1 - sparsity) * value_bits + grid_bits / group_size


def _library(sparsity: float, value_bits: int, group_size: int, grid_bits: int) -> float:
    from course_lib.lessons.sparsegpt.tables import bits_per_weight

    return bits_per_weight(sparsity, value_bits, group_size, grid_bits)


BITS = Exercise(
    id="sparsegpt.bits",
    title="Bits per weight",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_bits,
    library=_library,
    cases=lambda generator: [
        Case("half of the weights, 4 bits: 1 + 2 + 32/128", (0.5, 4, 128, 32)),
        Case("dense, 3 bits, the same grid", (0.0, 3, 128, 32)),
        Case("three quarters pruned, 8 bits, groups of 64", (0.75, 8, 64, 32)),
        Case("a quarter pruned, 4 bits, a grid of 40 bits for 16 weights", (0.25, 4, 16, 40)),
        Case("a random fraction below one half", (float(0.1 + 0.3 * torch.rand((), generator=generator)), 5, 32, 24)),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "for one group, then divided",
            lambda s, v, g, q: (g * (s > 0) + g * (1 - s) * v + q) / g,
        ),
        Variant("a tensor", lambda s, v, g, q: torch.tensor(_bits(s, v, g, q), dtype=torch.float64)),
    ),
    hints=(
        "Count the bits of one group of group_size weights: values, bitmap, grid. Then divide.",
        "Per weight: values (1 − s) · value_bits; bitmap 1 if s > 0; grid grid_bits / group_size.",
    ),
)
