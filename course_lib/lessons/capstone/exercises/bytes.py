"""The exercise capstone.bytes, "Three ways to store a layer": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns), K weights that are not zero.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float
WAYS = ("all codes", "bitmap", "index")


def _up(numerator: Number, denominator: Number) -> int:
    return int(-(-numerator // denominator))


def _bytes(weight: Tensor, bits: int, group: int) -> dict[str, Number]:
    rows, columns = weight.shape
    kept = int(weight.count_nonzero())
    n_groups = _up(columns, group)
    all_codes = rows * _up(columns * bits, 8)
    codes = _up(kept * bits, 8)
    bitmap = rows * _up(columns, 8)
    index = 2 * kept
    starts = 4 * (rows + 1)
    scales = 2 * rows * n_groups
    zeros = rows * _up(n_groups * bits, 8)
    sizes = all_codes, codes + bitmap + starts, codes + index + starts
    return {way: size + (scales + zeros) for way, size in zip(WAYS, sizes, strict=True)}


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    ways = tuple(expected)
    mine, right = ([float(values[way]) for way in ways] for values in (got, expected))
    return compare_bars(torch.tensor(mine), torch.tensor(right), ways, "bytes")


def _bytes_cases(generator: torch.Generator) -> list[Case]:
    def drawn(rows: int, columns: int, share: float) -> Tensor:
        weight = randn(generator, rows, columns)
        return weight * (torch.rand(rows, columns, generator=generator) < share)

    by_hand = torch.zeros(2, 16)
    by_hand[0, :9], by_hand[1, 10:] = 0.5, -0.25
    turned = drawn(45, 26, 0.5).T
    return [
        Case("2 × 16, 15 are left, 4 bits, groups of 8: grids of 10 bytes", (by_hand, 4, 8)),
        Case("half of 37 × 93 is left, 4 bits, groups of 16", (drawn(37, 93, 0.5), 4, 16)),
        Case("half of 64 × 51 is left, 2 bits, groups of 20", (drawn(64, 51, 0.5), 2, 20)),
        Case("a twentieth of 29 × 110 is left, 8 bits, groups of 32", (drawn(29, 110, 0.05), 8, 32)),
        Case("nothing is pruned, 4 bits, groups of 24", (randn(generator, 18, 75), 4, 24)),
        Case("a group larger than a row, 2 bits", (drawn(21, 43, 0.4), 2, 128)),
        Case("not contiguous, 8 bits, groups of 16", (turned, 8, 16)),
    ]


def _library(weight: Tensor, bits: int, group: int) -> dict[str, int]:
    from course_lib.lessons.capstone.methods import ways_to_store

    return ways_to_store(weight, bits, group)


BYTES = Exercise(
    id="capstone.bytes",
    title="Three ways to store a layer",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_bytes,
    cases=_bytes_cases,
    picture=_picture,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_bytes),
    also_right=(
        Variant("row by row", lambda *given: _by_rows(*given)),
        Variant("in bits, at last divided by 8", lambda *given: _in_bits(*given)),
    ),
    hints=(
        "Six things can be stored of a layer: codes, bitmap, column numbers, row starts, scales and zero points. Which "
        "of them does each way need?",
        "A row has ⌈I / group⌉ groups. Its scales are 2 bytes each, its zero points together ⌈groups · bits / 8⌉, "
        "its part of the bitmap ⌈I / 8⌉.",
        "With K weights that are not zero: ⌈K · bits / 8⌉ for their codes, 2 · K for their columns, 4 · (O + 1) for "
        "the starts.",
    ),
)


def _by_rows(weight: Tensor, bits: int, group: int) -> dict[str, int]:
    total, kept = dict.fromkeys(WAYS, 0), 0
    for row in weight.tolist():
        groups, left = len(range(0, len(row), group)), sum(w != 0 for w in row)
        grids = 2 * groups + (groups * bits + 7) // 8
        total["all codes"] += grids + (len(row) * bits + 7) // 8
        total["bitmap"] += grids + 4 + (len(row) + 7) // 8
        total["index"] += grids + 4 + 2 * left
        kept += left
    for way in WAYS[1:]:
        total[way] += 4 + (kept * bits + 7) // 8
    return total


def _in_bits(weight: Tensor, bits: int, group: int) -> dict[str, float]:
    rows, columns = weight.shape
    kept, n = int((weight != 0).sum()), (columns - 1) // group + 1
    parts = {
        "all codes": [columns * bits] * rows,
        "bitmap": [kept * bits, 32 * (rows + 1), *[columns] * rows],
        "index": [kept * bits, 32 * (rows + 1), 16 * kept],
    }
    grids = [16 * n, n * bits] * rows
    return {way: sum(part + -part % 8 for part in grids + each) / 8 for way, each in parts.items()}
