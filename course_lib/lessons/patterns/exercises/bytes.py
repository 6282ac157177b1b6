"""The exercise patterns.bytes, "Bytes of four formats": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _sizes(
    rows: int,
    columns: int,
    n_stored: int,
    value_bytes: int,
    index_bytes: int = 4,
    map_bytes: int | None = None,
    starts: int = 4,
    place_bytes: int | None = None,
) -> dict[str, int]:
    """All four sizes; the last four settings are where they go wrong."""
    kept = columns // 2
    bitmap = rows * -(-columns // 8) if map_bytes is None else map_bytes
    places = rows * -(-kept // 4) if place_bytes is None else place_bytes
    return {
        "dense": rows * columns * value_bytes,
        "CSR": n_stored * (value_bytes + index_bytes) + starts * (rows + 1),
        "bitmap": n_stored * value_bytes + bitmap + starts * (rows + 1),
        "2:4": rows * kept * value_bytes + places,
    }


def _sizes_cases(generator: torch.Generator) -> list[Case]:
    n_stored = int(torch.randint(10, 4000, (), generator=generator))
    return [
        Case("2 × 8 with five stored, float32", (2, 8, 5, 4)),
        Case("576 × 1536, half stored, float16", (576, 1536, 576 * 1536 // 2, 2)),
        Case("a width that is no multiple of 8: 60 × 44", (60, 44, 900, 2)),
        Case("a drawn count, 8-bit values", (70, 100, n_stored, 1)),
    ]


BYTES = Exercise(
    id="patterns.bytes",
    title="Bytes of four formats",
    difficulty=2,
    minutes=10,
    points=3,
    reference=_sizes,
    cases=_sizes_cases,
    mistakes=(
        Mistake(
            "row starts forgotten",
            "CSR and bitmap need to know where each row begins in the values: O + 1 numbers of 4 bytes.",
            lambda o, i, z, v: _sizes(o, i, z, v, starts=0),
        ),
        Mistake(
            "a byte for each bit of the map",
            "The bitmap has one bit an entry, so a row takes ⌈I / 8⌉ bytes.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i),
        ),
        Mistake(
            "rows of the map run together",
            "Each row of the map begins on a byte of its own: O · ⌈I / 8⌉, not ⌈O · I / 8⌉. The same holds for 2:4.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=-(-o * i // 8), place_bytes=-(-o * (i // 2) // 4)),
        ),
        Mistake(
            "index as narrow as the value",
            "A column number is a 4-byte integer, whatever the width of the value it belongs to.",
            lambda o, i, z, v: _sizes(o, i, z, v, index_bytes=v),
        ),
        Mistake(
            "places of 2:4 forgotten",
            "The values alone do not say where they belong: each has a 2-bit place, four to the byte.",
            lambda o, i, z, v: _sizes(o, i, z, v, place_bytes=0),
        ),
        Mistake(
            "in bits",
            "These are bits. Divide by 8.",
            lambda o, i, z, v: {name: 8 * size for name, size in _sizes(o, i, z, v).items()},
        ),
    ),
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
        "Go tensor by tensor. CSR: values, columns, row starts. Bitmap: values, map, row starts. 2:4: values, places.",
        "Row starts: one for each row and one for the end, 4 bytes each. -(-n // 8) rounds n / 8 up.",
        "2:4 stores I / 2 values a row, whatever is zero among them, and as many 2-bit places: ⌈(I / 2) / 4⌉ bytes.",
    ),
)
