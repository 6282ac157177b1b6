"""The exercise patterns.break_even, "Where a format starts to pay": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _break_even(value_bytes: int | float, index_bytes: int | float) -> tuple[float, float]:
    return value_bytes / (value_bytes + index_bytes), 1 - 1 / (8 * value_bytes)


BREAK_EVEN = Exercise(
    id="patterns.break_even",
    title="Where a format starts to pay",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_break_even,
    cases=lambda generator: [
        Case("float32, 4-byte indices", (4, 4)),
        Case("float16, 4-byte indices", (2, 4)),
        Case("float16, 2-byte indices", (2, 2)),
        Case("4-bit values", (0.5, 4)),
        Case("a drawn width", (int(torch.randint(5, 12, (), generator=generator)), 4)),
    ],
    mistakes=(
        Mistake(
            "sparsity instead of density",
            "These are the fractions of zeros. The task asks for the density: the fraction stored.",
            lambda v, i: tuple(1 - d for d in _break_even(v, i)),
        ),
        Mistake(
            "the values of CSR forgotten",
            "CSR stores the value as well as its index: v + i bytes for each.",
            lambda v, i: (v / i, _break_even(v, i)[1]),
        ),
        Mistake(
            "a byte for each bit of the map",
            "The map takes an eighth of a byte for each entry.",
            lambda v, i: (_break_even(v, i)[0], 1 - 1 / v),
        ),
        Mistake(
            "the map only for what is stored",
            "The map has a bit for every entry, stored or not: d · v + 1/8, not d · (v + 1/8).",
            lambda v, i: (_break_even(v, i)[0], v / (v + 1 / 8)),
        ),
        Mistake(
            "upside down",
            "These are above 1. At break-even d · (v + i) = v; solve for d.",
            lambda v, i: tuple(1 / d for d in _break_even(v, i)),
        ),
    ),
    also_right=(
        Variant("in eighths", lambda v, i: (1 / (1 + i / v), (8 * v - 1) / (8 * v))),
        Variant("as a tensor", lambda v, i: torch.tensor(_break_even(v, i), dtype=torch.float64)),
    ),
    hints=(
        "Count bytes for each entry of the matrix, stored or not. Dense: v. CSR: d · (v + i), for d are stored.",
        "Bitmap: d · v for the values, and an eighth of a byte for every entry.",
        "Set each equal to v and solve for d.",
    ),
)
