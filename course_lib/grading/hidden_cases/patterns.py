"""Hidden cases of lesson 01: one row or column, empty columns, large next to small values, stored zeros.

Dimension key: O outputs (rows), I inputs (columns), N tokens, P packed bytes in a row.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case
from course_lib.lessons.patterns.exercises.choose import case_of, of_columns, random_mask, two_of_four


def _shuffled(generator: torch.Generator, values: Tensor) -> Tensor:
    return values[torch.randperm(len(values), generator=generator)]


def _distinct(rows: int, columns: int) -> Tensor:
    """Whole numbers, each column larger than the one before: copies of a column have exactly the same norm and sum."""
    signs = 1 - 2 * ((torch.arange(rows)[:, None] + torch.arange(columns)) % 2)
    return (1.0 + torch.arange(columns)) * signs * (1 + torch.arange(rows) % 3)[:, None]


def _two_kinds(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Columns of similar norm; half of them hold a few large entries, half many small ones."""
    few = torch.rand(rows, columns, generator=generator).argsort(0) < 2
    many = torch.arange(columns) % 2 == 0
    unit = randn(generator, rows, columns).sign() * torch.where(many, rows**-0.5, few * 2**-0.5)
    return unit * (1 + torch.randperm(columns, generator=generator) / columns)


def _columns(generator: torch.Generator) -> list[Case]:
    empty = randn(generator, 8, 18)
    empty[:, [0, 5, 6, 17]] = 0
    scale = _shuffled(generator, torch.logspace(-4, 4, 25))
    return [
        Case("a single output", (randn(generator, 1, 14), 6)),
        Case("large and small inputs", (randn(generator, 30, 25) * scale, 9)),
        Case("columns of zeros, of which two are kept", (empty, 16)),
        Case("each column four times", (_distinct(9, 5).repeat(1, 4), 10)),
        Case("many outputs, two kinds of columns", (_two_kinds(generator, 90, 14), 7)),
    ]


def _blocks(generator: torch.Generator) -> list[Case]:
    uneven = randn(generator, 64, 96)
    uneven[8:16, 32:48] *= 0.2
    uneven[10, 40] = 40.0  # larger than any other entry, in a block with a small sum
    tall = _two_kinds(generator, 5, 48).T.reshape(6, 8, 5).transpose(1, 2).reshape(30, 8)
    return [
        Case("blocks one input wide", (tall, 5, 1, 17)),
        Case("48 blocks, the largest entry in a small one", (uneven, 8, 16, 11)),
        Case("blocks as high as the matrix", (randn(generator, 4, 21), 4, 3, 3)),
        Case("each block four times", (_distinct(6, 6).repeat(2, 2), 3, 2, 6)),
        Case("a matrix of ones", (torch.ones(8, 12), 4, 3, 3)),
    ]


def _nofm(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[1.0, -8.0, 0.5, 9.0], [-5.0, 0.0, 0.0, 6.0], [2.0, 3.0, -4.0, 1.0]])
    # The smallest group is far above the tolerance of the comparison, a millionth of the largest entry.
    scale = _shuffled(generator, torch.logspace(-1.5, 1.5, 32)).repeat_interleave(4)
    return [
        Case("one group per row", (by_hand,)),
        Case("mostly zeros", (randn(generator, 16, 32) * (torch.rand(16, 32, generator=generator) < 0.3),)),
        Case("large and small groups", (randn(generator, 20, 128) * scale,)),
    ]


def _bytes(generator: torch.Generator) -> list[Case]:
    n_stored = int(torch.randint(1, 300, (), generator=generator))
    return [
        Case("nothing stored, 8-byte values", (3, 4, 0, 8)),
        Case("narrow, everything stored", (1000, 4, 4000, 2)),
        Case("a single row", (1, 20, 7, 2)),
        Case("a random count, one byte per value", (9, 36, n_stored, 1)),
    ]


def _choose(generator: torch.Generator) -> list[Case]:
    lone = two_of_four(generator, 50, 16)
    lone[7, :8] = torch.tensor([1, 1, 1, 0, 0, 0, 0, 1]).bool()
    thin = two_of_four(generator, 50, 16)
    thin[::9, 4:8] = False
    scattered = torch.zeros(9, 300, dtype=torch.bool)
    scattered[torch.arange(9), torch.randperm(300, generator=generator)[:9]] = True
    return [
        case_of("two of every four, 8-byte values", two_of_four(generator, 17, 36), 8),
        case_of("some groups are empty", thin),
        case_of("one group of three", lone),
        case_of("fourteen inputs, two columns", of_columns(33, 14, [0, 13])),
        case_of("five neighbouring columns of twelve", of_columns(64, 12, [4, 5, 6, 7, 8])),
        case_of("nine weights in a wide matrix", scattered),
        case_of("all kept, one byte per value", torch.ones(12, 20, dtype=torch.bool), 1),
        case_of("six of ten kept", random_mask(generator, 26, 40, 0.6)),
    ]


def _as_bitmap(keep: Tensor, values: Tensor) -> tuple[Tensor, Tensor, int]:
    bits = pad(keep.long(), (0, -keep.shape[1] % 8)).unflatten(1, (-1, 8))
    return values, (bits << torch.arange(8)).sum(2).to(torch.uint8), keep.shape[1]


def _bitmap(generator: torch.Generator) -> list[Case]:
    def random(rows: int, columns: int, density: float) -> tuple[Tensor, Tensor, int]:
        keep = torch.rand(rows, columns, generator=generator) < density
        keep[0, columns // 2] = True
        return _as_bitmap(keep, randn(generator, int(keep.sum())))

    full = torch.ones(5, 17, dtype=torch.bool)
    values, bitmap, columns = random(4, 30, 0.4)
    values[::3] = 0
    return [
        Case("every entry is stored", _as_bitmap(full, randn(generator, 85))),
        Case("a single column", random(13, 1, 0.5)),
        Case("some of the stored values are zero", (values, bitmap, columns)),
        Case("two long rows, nearly empty", random(2, 203, 0.05)),
    ]


def _break_even(generator: torch.Generator) -> list[Case]:
    index_bytes = int(torch.randint(1, 9, (), generator=generator))
    return [
        Case("values in float64", (8, 2)),
        Case("values and indices of one byte", (1, 1)),
        Case("2-bit values, 2-byte indices", (0.25, 2)),
        Case("12-bit values, a random index", (1.5, index_bytes)),
    ]


def _pairs(generator: torch.Generator) -> tuple[Tensor, Tensor, int]:
    """Each input occurs twice with the same column: of the last pair one is kept, and either gives the same output."""
    sizes = torch.stack([_shuffled(generator, torch.arange(1.0, 7.0)) for _ in range(10)])
    return randn(generator, 8, 6).repeat(1, 2), sizes.repeat(1, 2), 5


def _equal(generator: torch.Generator) -> tuple[Tensor, Tensor, int]:
    return randn(generator, 4, 1).repeat(1, 9), torch.tensor([[0.5], [-8.0]]).repeat(1, 9), 4


def _dynamic(generator: torch.Generator) -> list[Case]:
    scale = _shuffled(generator, torch.logspace(-1, 1, 30))
    return [
        Case("one token, one output", (randn(generator, 1, 9), randn(generator, 1, 9), 4)),
        Case("one input per token", (randn(generator, 5, 64), randn(generator, 11, 64), 1)),
        Case("large and small inputs", (randn(generator, 12, 30), randn(generator, 40, 30) * scale, 7)),
        Case("all but one kept", (randn(generator, 6, 13), randn(generator, 8, 13), 12)),
        Case("inputs tied in pairs, with equal columns", _pairs(generator)),
        Case("a small token of equal inputs next to a large one", _equal(generator)),
    ]


HIDDEN = {
    "patterns.columns": _columns,
    "patterns.blocks": _blocks,
    "patterns.nofm": _nofm,
    "patterns.bytes": _bytes,
    "patterns.choose": _choose,
    "patterns.bitmap": _bitmap,
    "patterns.break_even": _break_even,
    "patterns.dynamic": _dynamic,
}
