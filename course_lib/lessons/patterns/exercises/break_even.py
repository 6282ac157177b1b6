"""The exercise patterns.break_even, "Where a format starts to pay": its cases and its named mistakes."""

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


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
        Case("a random width", (int(torch.randint(5, 12, (), generator=generator)), 4)),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in eighths", lambda v, i: (1 / (1 + i / v), (8 * v - 1) / (8 * v))),
        Variant("as a tensor", lambda v, i: torch.tensor(_break_even(v, i), dtype=torch.float64)),
    ),
    hints=(
        "Count bytes per entry, stored or not. Dense: v. CSR: d · (v + i), because a fraction d is stored.",
        "Bitmap: d · v for the values, and an eighth of a byte per entry.",
        "Set each equal to v and solve for d.",
    ),
)
