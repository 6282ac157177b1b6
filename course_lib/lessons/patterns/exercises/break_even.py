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
            "one of the two is a sparsity",
            "One of the two numbers is right. The other one is the fraction of zeros; the task asks for the density, "
            "the fraction that is stored, both times.",
            lambda v, i: (i / (v + i), _break_even(v, i)[1]),
            also=(lambda v, i: (_break_even(v, i)[0], 1 / (8 * v)),),
        ),
        Mistake(
            "the other way round",
            "CSR comes first, then the bitmap.",
            lambda v, i: _break_even(v, i)[::-1],
        ),
        Mistake(
            "the values of CSR forgotten",
            "CSR stores the value as well as its index: v + i bytes for each.",
            lambda v, i: (v / i, _break_even(v, i)[1]),
        ),
        Mistake(
            "a byte for each bit of the map",
            "The map takes one bit per entry, which is an eighth of a byte: neither one byte nor eight.",
            lambda v, i: (_break_even(v, i)[0], 1 - 1 / v),
            also=(lambda v, i: (_break_even(v, i)[0], 1 - 8 / v),),
        ),
        Mistake(
            "the map only for what is stored",
            "The map has a bit for every entry, stored or not: d · v + 1/8, not d · (v + 1/8).",
            lambda v, i: (_break_even(v, i)[0], v / (v + 1 / 8)),
        ),
        Mistake(
            "one index in all",
            "Every stored value has an index of its own: d · (v + i), not d · v + i.",
            lambda v, i: ((v - i) / v, _break_even(v, i)[1]),
        ),
        Mistake(
            "value bytes taken for bits",
            "v counts bytes, and the map takes one bit an entry: 1/8 of a byte. d · v + 1/8 = v.",
            lambda v, i: (_break_even(v, i)[0], 1 - v / 8),
        ),
        Mistake(
            "two numbers of index for each value",
            "CSR stores one column number for each value; the rows are known from the row starts.",
            lambda v, i: (v / (v + 2 * i), _break_even(v, i)[1]),
        ),
        Mistake(
            "the sizes instead of the density",
            "These are bytes for each entry. Set them equal to v and solve for the density d.",
            lambda v, i: (v + i, v + 1 / 8),
        ),
        Mistake(
            "in per cent",
            "A density lies between 0 and 1.",
            lambda v, i: tuple(100 * d for d in _break_even(v, i)),
        ),
        Mistake(
            "the map added, not subtracted",
            "The map costs 1/8 of a byte whatever is stored, so fewer values may be stored: d = (v − 1/8) / v.",
            lambda v, i: (_break_even(v, i)[0], 1 + 1 / (8 * v)),
        ),
        Mistake(
            "rounded to whole numbers",
            "// and int() round down, and every density below 1 becomes 0. Divide with /.",
            lambda v, i: tuple(float(int(d)) for d in _break_even(v, i)),
            also=(lambda v, i: (v // (v + i), 1 - 1 // (8 * v)),),
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
