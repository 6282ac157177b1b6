"""The exercise patterns.bytes, "Bytes of four formats": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

import math

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.answers import compare_bars


def _sizes(
    rows: int,
    columns: int,
    n_stored: int,
    value_bytes: int,
    index_bytes: int = 4,
    map_bytes: int | float | None = None,
    starts: int = 4,
    place_bytes: int | float | None = None,
    n_starts: int | None = None,
) -> dict[str, int | float]:
    """All four sizes; the last five settings are where they go wrong."""
    kept = columns // 2
    bitmap = rows * -(-columns // 8) if map_bytes is None else map_bytes
    places = rows * -(-kept // 4) if place_bytes is None else place_bytes
    row_starts = starts * (rows + 1 if n_starts is None else n_starts)
    return {
        "dense": rows * columns * value_bytes,
        "CSR": n_stored * (value_bytes + index_bytes) + row_starts,
        "bitmap": n_stored * value_bytes + bitmap + row_starts,
        "2:4": rows * kept * value_bytes + places,
    }


def _but(o: int, i: int, z: int, v: int, name: str, **wrong: int) -> dict[str, int | float]:
    """Right but for one format, which is as with other settings."""
    return _sizes(o, i, z, v) | {name: _sizes(o, i, z, v, **wrong)[name]}


def _without_row_starts_in(name: str, o: int, i: int, z: int, v: int) -> dict[str, int | float]:
    return _but(o, i, z, v, name, starts=0)


def _sizes_cases(generator: torch.Generator) -> list[Case]:
    n_stored = int(torch.randint(10, 4000, (), generator=generator))
    return [
        Case("2 × 8 with five stored, float32", (2, 8, 5, 4)),
        Case("576 × 1536, half stored, float16", (576, 1536, 576 * 1536 // 2, 2)),
        Case("a width that is no multiple of 8: 60 × 44", (60, 44, 900, 2)),
        Case("a drawn count, 8-bit values", (70, 100, n_stored, 1)),
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
    mistakes=(
        Mistake(
            "row starts forgotten",
            "CSR and bitmap need to know where each row begins in the values: O + 1 numbers of 4 bytes.",
            lambda o, i, z, v: _sizes(o, i, z, v, starts=0),
            also=(
                lambda o, i, z, v: _without_row_starts_in("CSR", o, i, z, v),
                lambda o, i, z, v: _without_row_starts_in("bitmap", o, i, z, v),
            ),
        ),
        Mistake(
            "the end of the last row forgotten",
            "Row starts hold one number for each row and one for the end: O + 1, not O.",
            lambda o, i, z, v: _sizes(o, i, z, v, n_starts=o),
            also=(
                lambda o, i, z, v: _but(o, i, z, v, "CSR", n_starts=o),
                lambda o, i, z, v: _but(o, i, z, v, "bitmap", n_starts=o),
            ),
        ),
        Mistake(
            "row starts counted in columns",
            "There is a start for each row, and one for the end: O + 1, not I + 1.",
            lambda o, i, z, v: _sizes(o, i, z, v, n_starts=i + 1),
            also=(lambda o, i, z, v: _but(o, i, z, v, "CSR", n_starts=i + 1),),
        ),
        Mistake(
            "row starts as wide as a value",
            "Row starts are 4-byte integers, whatever the width of the values.",
            lambda o, i, z, v: _sizes(o, i, z, v, starts=v),
        ),
        Mistake(
            "a byte for each bit of the map",
            "The bitmap has one bit an entry, so a row takes ⌈I / 8⌉ bytes.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i),
        ),
        Mistake(
            "a value's width for each bit of the map",
            "The map takes one bit an entry, however wide the values are.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i * v),
        ),
        Mistake(
            "rounded down to whole bytes",
            "A byte that is begun counts: ⌈I / 8⌉. I // 8 forgets the last columns where I is no multiple of 8.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * (i // 8), place_bytes=o * (i // 8)),
            also=(
                lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * (i // 8)),
                lambda o, i, z, v: _sizes(o, i, z, v, place_bytes=o * (i // 8)),
            ),
        ),
        Mistake(
            "rows of the map run together",
            "Each row of the map begins on a byte of its own: O · ⌈I / 8⌉, not ⌈O · I / 8⌉. The same holds for 2:4.",
            lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=-(-o * i // 8), place_bytes=-(-o * (i // 2) // 4)),
            also=(
                lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=-(-o * i // 8)),
                lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i / 8, place_bytes=o * i / 8),
                lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i / 8),
                lambda o, i, z, v: _sizes(o, i, z, v, map_bytes=o * i // 8, place_bytes=o * i // 8),
            ),
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
            "a whole byte for each place",
            "A place takes two bits, so four of them share a byte.",
            lambda o, i, z, v: _sizes(o, i, z, v, place_bytes=o * (i // 2)),
        ),
        Mistake(
            "four bytes for each place",
            "A place in a group of four takes two bits; only the column numbers of CSR are 4-byte integers.",
            lambda o, i, z, v: _sizes(o, i, z, v, place_bytes=4 * o * (i // 2)),
        ),
        Mistake(
            "2:4 by what is stored",
            "2:4 always holds half of the entries, whatever the number stored: I / 2 values a row.",
            lambda o, i, z, v: _sizes(o, i, z, v) | {"2:4": z * v + o * -(-i // 8)},
            also=(lambda o, i, z, v: _sizes(o, i, z, v) | {"2:4": z * v + -(-z // 4)},),
        ),
        Mistake(
            "row starts in 2:4",
            "Every row of 2:4 has the same number of values, so its start needs no number.",
            lambda o, i, z, v: _sizes(o, i, z, v) | {"2:4": _sizes(o, i, z, v)["2:4"] + 4 * (o + 1)},
        ),
        Mistake(
            "the column numbers of CSR forgotten",
            "Each value of CSR comes with its column, 4 bytes: Z (v + 4).",
            lambda o, i, z, v: _but(o, i, z, v, "CSR", index_bytes=0),
        ),
        Mistake(
            "a row number for each value",
            "CSR stores no row numbers: the row starts say which values belong to a row.",
            lambda o, i, z, v: _but(o, i, z, v, "CSR", index_bytes=8),
            also=(lambda o, i, z, v: _but(o, i, z, v, "CSR", index_bytes=8, starts=0),),
        ),
        Mistake(
            "the map without its values",
            "The bitmap says where the values belong. The values themselves are stored, too: Z · v bytes.",
            lambda o, i, z, v: _sizes(o, i, z, v) | {"bitmap": o * -(-i // 8) + 4 * (o + 1)},
        ),
        Mistake(
            "entries counted instead of bytes",
            "The dense matrix has O · I entries of v bytes each.",
            lambda o, i, z, v: _sizes(o, i, z, v) | {"dense": o * i},
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
