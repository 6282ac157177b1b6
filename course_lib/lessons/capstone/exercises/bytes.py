"""The exercise capstone.bytes, "When does it pay to store zeros?": its cases and its named mistakes."""

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float


def _break_even(rows: int, columns: int, bits: int, group: int) -> tuple[Number, Number]:
    """All three formats store the same grids, so these cancel.

    Bitmap: ⌈K b / 8⌉ < left − bitmap, so K b ≤ 8 (left − bitmap − 1). Index: ⌈K b / 8⌉ + 2 K < left, so
    K (b + 16) ≤ 8 (left − 1), since 2 K is a whole number of bytes.
    """
    all_codes = rows * _up(columns * bits, 8)
    bitmap = rows * _up(columns, 8)
    starts = 4 * (rows + 1)
    left = all_codes - starts
    by_bitmap = 8 * (left - bitmap - 1) // bits
    by_index = 8 * (left - 1) // (bits + 16)
    return max(by_bitmap, -1), max(by_index, -1)


def _up(numerator: Number, denominator: Number) -> int:
    return int(-(-numerator // denominator))


def _grids(rows: int, columns: int, bits: int, group: int) -> int:
    n_groups = _up(columns, group)
    return rows * (2 * n_groups + _up(n_groups * bits, 8))


def _cases(generator: torch.Generator) -> list[Case]:
    def drawn(rows: tuple[int, int], columns: tuple[int, int], bits: int, group: int) -> tuple[int, int, int, int]:
        return whole(generator, *rows), whole(generator, *columns), bits, group

    return [
        Case("2 × 64 by hand, 4 bits: 64 bytes of codes, 16 of the bitmap, 12 of row starts", (2, 64, 4, 32)),
        Case("a matrix of an MLP, 4 bits, groups of 64", (1536, 576, 4, 64)),
        Case("4 bits, groups of 32", drawn((30, 50), (90, 120), 4, 32)),
        Case("3 bits, groups of 64", drawn((60, 90), (301, 340), 3, 64)),
        Case("8 bits, one group per row", drawn((20, 40), (150, 190), 8, 512)),
        Case("2 bits, groups of 20", drawn((9, 15), (401, 480), 2, 20)),
        Case("short rows, 2 bits: neither format pays", drawn((30, 60), (5, 13), 2, 16)),
        Case("only the index pays, 2 bits", drawn((40, 60), (22, 30), 2, 16)),
        Case("one row of 4 bits", drawn((1, 2), (200, 260), 4, 16)),
    ]


def _library(rows: int, columns: int, bits: int, group: int) -> tuple[int, int]:
    from course_lib.lessons.capstone.methods import most_kept

    return most_kept(rows, columns, bits, group)


BYTES = Exercise(
    id="capstone.bytes",
    title="When does it pay to store zeros?",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_break_even,
    cases=_cases,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_break_even),
    trivial=(Trivial("never", lambda rows, columns, bits, group: (-1, -1)),),
    also_right=(
        Variant("one number after the other", lambda *given: _by_search(*given)),
        Variant("by bisection, with all bytes", lambda *given: _by_bisection(*given)),
    ),
    hints=(
        "Write down the bytes of all three formats. Which terms are in all of them, and can be left out?",
        "Codes and the bitmap of a row fill whole bytes in the formats that store rows: O ⌈I b / 8⌉ and O ⌈I / 8⌉. The "
        "row starts are in two of the formats.",
        "With a bitmap, ⌈K b / 8⌉ must be at most O ⌈I b / 8⌉ − O ⌈I / 8⌉ − 4 (O + 1) − 1. What is the largest K?",
    ),
)


def _sizes(rows: int, columns: int, bits: int, group: int, n_kept: int) -> tuple[int, int, int]:
    grids, starts, codes = _grids(rows, columns, bits, group), 4 * (rows + 1), _up(n_kept * bits, 8)
    return (
        rows * _up(columns * bits, 8) + grids,
        codes + rows * _up(columns, 8) + starts + grids,
        codes + 2 * n_kept + starts + grids,
    )


def _by_search(rows: int, columns: int, bits: int, group: int) -> list[int]:
    """A step of 1 at a time would be slow for a large matrix, so steps begin large."""
    found = []
    for which in (1, 2):
        n_kept, step = -1, 2**22
        while step:
            sizes = _sizes(rows, columns, bits, group, n_kept + step)
            if sizes[which] < sizes[0]:
                n_kept += step
            else:
                step //= 2
        found.append(n_kept)
    return found


def _by_bisection(rows: int, columns: int, bits: int, group: int) -> tuple[int, int]:
    from bisect import bisect_left

    every = _sizes(rows, columns, bits, group, 0)[0]
    counts = range(rows * columns + 1)
    firsts = (
        bisect_left(counts, every, key=lambda n, which=which: _sizes(rows, columns, bits, group, n)[which])
        for which in (1, 2)
    )
    return tuple(first - 1 for first in firsts)
