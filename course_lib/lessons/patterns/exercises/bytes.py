"""The exercise patterns.bytes, "Bytes of four formats": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.answers import compare_bars


def _sizes(
    rows: int,
    columns: int,
    n_stored: int,
    value_bytes: int,
    index_bytes: int = 4,
    map_bytes: int | float | None = None,
    starts: int = 4,
    position_bytes: int | float | None = None,
    n_starts: int | None = None,
) -> dict[str, int | float]:
    """All four sizes; mistakes change one of the last five settings."""
    kept = columns // 2
    bitmap = rows * -(-columns // 8) if map_bytes is None else map_bytes
    positions = rows * -(-kept // 4) if position_bytes is None else position_bytes
    row_starts = starts * (rows + 1 if n_starts is None else n_starts)
    return {
        "dense": rows * columns * value_bytes,
        "CSR": n_stored * (value_bytes + index_bytes) + row_starts,
        "bitmap": n_stored * value_bytes + bitmap + row_starts,
        "2:4": rows * kept * value_bytes + positions,
    }


def _except(o: int, i: int, z: int, v: int, name: str, **wrong: int) -> dict[str, int | float]:
    """Right sizes, except for one format, which has other settings."""
    return _sizes(o, i, z, v) | {name: _sizes(o, i, z, v, **wrong)[name]}


def _without_row_starts_in(name: str, o: int, i: int, z: int, v: int) -> dict[str, int | float]:
    return _except(o, i, z, v, name, starts=0)


def _sizes_cases(generator: torch.Generator) -> list[Case]:
    n_stored = int(torch.randint(10, 4000, (), generator=generator))
    return [
        Case("2 × 8 with five stored values, float32", (2, 8, 5, 4)),
        Case("576 × 1536, half stored, float16", (576, 1536, 576 * 1536 // 2, 2)),
        Case("a width that is not a multiple of 8: 60 × 44", (60, 44, 900, 2)),
        Case("a random count, 8-bit values", (70, 100, n_stored, 1)),
    ]


def _library(rows: int, columns: int, n_stored: int, value_bytes: int) -> dict[str, int]:
    from course_lib.sparsity import sizes

    return {
        "dense": sizes.dense_bytes(rows, columns, value_bytes),
        "CSR": sizes.csr_bytes(rows, n_stored, value_bytes),
        "bitmap": sizes.bitmap_bytes(rows, columns, n_stored, value_bytes),
        "2:4": sizes.nofm_bytes(rows, columns, value_bytes),
    }


BYTES = Exercise(
    id="patterns.bytes",
    title="Bytes of four formats",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_sizes,
    cases=_sizes_cases,
    library=_library,
    picture=lambda case, got, expected: compare_bars(
        torch.tensor([float(got[name]) for name in expected]),
        torch.tensor([float(size) for size in expected.values()]),
        tuple(expected),
        "bytes",
    ),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("as floats", lambda o, i, z, v: {name: float(size) for name, size in _sizes(o, i, z, v).items()}),
        Variant(
            "with math.ceil, in another order",
            lambda o, i, z, v: {
                "2:4": o * (i // 2 * v + math.ceil(i / 8)),
                "bitmap": z * v + o * math.ceil(i / 8) + 4 * (o + 1),
                "CSR": z * v + 4 * z + 4 * (o + 1),
                "dense": o * i * v,
            },
        ),
    ),
    hints=(
        "CSR: values, columns, row starts. Bitmap: values, map, row starts. 2:4: values, positions. Add them up.",
        "Row starts: one per row and one for the end, 4 bytes each. -(-n // 8) rounds n / 8 up.",
        "2:4 stores I / 2 values per row, even zeros, and a 2-bit position for each: ⌈(I / 2) / 4⌉ bytes per row.",
    ),
)
