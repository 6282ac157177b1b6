"""The exercise patterns.bitmap, "Read a bitmap": its cases and its named mistakes.

Dimension key: O outputs (rows), P packed bytes in a row.
"""

import numpy
import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks


def _bits(bitmap: Tensor, shifts: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """(O, P) bytes to (O, 8 P) bits, in the order of the shifts."""
    return ((bitmap.long()[:, :, None] >> torch.tensor(shifts)) & 1).flatten(1).bool()


def _fill(keep: Tensor, values: Tensor) -> Tensor:
    dense = torch.zeros(keep.shape, dtype=values.dtype)
    dense[keep] = values
    return dense


def _unpack_bitmap(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    return _fill(_bits(bitmap)[:, :columns], values)


def _as_bitmap(dense: Tensor) -> tuple[Tensor, Tensor, int]:
    """The arguments for a matrix: its non-zeros, its map, its width."""
    keep = pad((dense != 0).long(), (0, -dense.shape[1] % 8)).unflatten(1, (-1, 8))
    return dense[dense != 0], (keep << torch.arange(8)).sum(2).to(torch.uint8), dense.shape[1]


def _bitmap_cases(generator: torch.Generator) -> list[Case]:
    def random(rows: int, columns: int, density: float) -> Tensor:
        return randn(generator, rows, columns) * (torch.rand(rows, columns, generator=generator) < density)

    by_hand = torch.tensor([[0.0, 7, 0, 0, 8, 0, 0, 0, 0, 0], [0.0] * 10, [1.0, 0, 0, 0, 0, 0, 0, 2, 0, 3]])
    return [
        Case("3 × 10 by hand, its middle row empty", _as_bitmap(by_hand)),
        Case("9 × 24, a third stored", _as_bitmap(random(9, 24, 0.3))),
        Case("a width that is not a multiple of 8: 6 × 13", _as_bitmap(random(6, 13, 0.5))),
        Case("narrower than a byte", _as_bitmap(random(11, 5, 0.5))),
    ]


def _first_bit_on_top(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    return _fill(_bits(bitmap, tuple(range(7, -1, -1)))[:, :columns], values[: int(_bits(bitmap).sum())])


def _first_bit_on_top_cut(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    keep = _bits(bitmap, tuple(range(7, -1, -1)))[:, :columns]
    return _fill(keep, values[: int(keep.sum())])


def _stream(bitmap: Tensor, columns: int) -> Tensor:
    return _bits(bitmap).flatten()[: bitmap.shape[0] * columns].reshape(-1, columns)


def _one_stream(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    keep = _stream(bitmap, columns)
    return _fill(keep, values[: int(keep.sum())])


def _values_from_the_start(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    keep = _bits(bitmap)[:, :columns]
    return torch.stack([_fill(row, values[: int(row.sum())]) for row in keep])


def _bits_by_byte_column(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    """The bits of all bytes by rank: first every lowest bit, then every second one."""
    bits = ((bitmap.long()[:, None, :] >> torch.arange(8)[:, None]) & 1).flatten(1).bool()[:, :columns]
    return _fill(bits, values[: int(bits.sum())])


def _whole_bytes(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    bits = _bits(bitmap)[:, : columns // 8 * 8]
    return _fill(bits, values[: int(bits.sum())])


def _library(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    from course_lib.sparsity.bitpacking import unpack

    dense = torch.zeros(bitmap.shape[0], columns, dtype=values.dtype)
    dense[unpack(bitmap, bits=1, n=columns).bool()] = values
    return dense


BITMAP = Exercise(
    id="patterns.bitmap",
    title="Read a bitmap",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_unpack_bitmap,
    cases=_bitmap_cases,
    picture=lambda case, got, expected: compare_masks(torch.as_tensor(got) != 0, expected != 0, 8),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "numpy.unpackbits",
            lambda values, bitmap, columns: _fill(
                torch.from_numpy(numpy.unpackbits(bitmap.numpy(), axis=1, bitorder="little"))[:, :columns].bool(),
                values,
            ),
        ),
        Variant("a loop over bits", lambda values, bitmap, columns: _unpack_in_a_loop(values, bitmap, columns)),
        Variant("float64", lambda values, bitmap, columns: _unpack_bitmap(values.double(), bitmap, columns)),
    ),
    hints=(
        "Shift every byte by 0 to 7 and take the lowest bit: (bitmap[:, :, None] >> torch.arange(8)) & 1.",
        "flatten(1) joins the bits of a row; its first `columns` bits are the row.",
        "dense[keep] = values fills the True entries row by row, which is the order of the values.",
    ),
)


def _unpack_in_a_loop(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    dense, remaining = torch.zeros(bitmap.shape[0], columns), iter(values.tolist())
    for row in range(bitmap.shape[0]):
        for column in range(columns):
            if int(bitmap[row, column // 8]) >> (column % 8) & 1:
                dense[row, column] = next(remaining)
    return dense
