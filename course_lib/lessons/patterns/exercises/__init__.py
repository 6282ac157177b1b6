"""Lesson 01: the exercises on sparsity patterns, their cases and their named mistakes.

Dimension key: O outputs (rows), I inputs (columns), N tokens, K values kept in a row, P packed bytes in a row.
"""

import math
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.short import short
from course_lib.lessons.common.masks import compare_masks

LESSON = "01 Sparsity patterns"


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


# patterns.columns ------------------------------------------------------------------------------------------------


def _best_columns(weight: Tensor, n_kept: int) -> Tensor:
    return weight.double().norm(dim=0).topk(n_kept).indices.sort().values


def _keep_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return weight[:, columns], columns


def _columns_cases(generator: torch.Generator) -> list[Case]:
    # norms 5.7, 1.4, 5, 3.6: the first cancels when summed, the last and the third trade places by order
    weight = torch.tensor([[4.0, 1.0, 0.0, 3.0], [-4.0, 1.0, 5.0, 2.0]])
    return [
        Case("2 × 4 by hand: the first column cancels when summed", (weight, 2)),
        Case("12 × 20, seven stay", (_randn(generator, 12, 20), 7)),
        Case("24 × 9, one stays", (_randn(generator, 24, 9), 1)),
        Case("a transposed, non-contiguous weight", (_randn(generator, 11, 16).T, 5)),
    ]


def _by_column_sum(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.sum(dim=0).topk(n_kept).indices.sort().values
    return weight[:, columns], columns


def _unsorted_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept).indices
    return weight[:, columns], columns


def _worst_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = weight.norm(dim=0).topk(n_kept, largest=False).indices.sort().values
    return weight[:, columns], columns


def _zeroed_columns(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    columns = _best_columns(weight, n_kept)
    return torch.zeros_like(weight).index_copy(1, columns, weight[:, columns]), columns


def _keep_rows(weight: Tensor, n_kept: int) -> tuple[Tensor, Tensor]:
    rows = _best_columns(weight.T, n_kept)
    return weight[rows], rows


COLUMNS = Exercise(
    id="patterns.columns",
    title="Remove whole inputs",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_keep_columns,
    cases=_columns_cases,
    mistakes=(
        Mistake(
            "rows instead of columns",
            "Whole outputs left. A column of an (outputs, inputs) matrix is an input: rank along dim 1.",
            _keep_rows,
        ),
        Mistake(
            "signed sum",
            "In a plain sum, large entries of opposite sign cancel. The norm squares them first.",
            _by_column_sum,
            also=(lambda weight, n_kept: _keep_columns_by(weight, n_kept, weight.sum(dim=0).abs()),),
        ),
        Mistake(
            "sorted by norm",
            "The right columns, in the order of their norm. The inputs arrive in their own order: sort the indices.",
            _unsorted_columns,
        ),
        Mistake(
            "zeros left in place",
            "The matrix still has all its columns, some filled with zeros: as many FLOPs and bytes as before.",
            _zeroed_columns,
        ),
        Mistake(
            "weakest kept",
            "The columns with the smallest norm stayed.",
            _worst_columns,
        ),
    ),
    also_right=(
        Variant("squares, no root", lambda w, n: _keep_columns_by(w, n, w.square().sum(0))),
        Variant(
            "a boolean mask",
            lambda w, n: (
                w[:, w.norm(dim=0) >= w.norm(dim=0).sort(descending=True).values[n - 1]],
                _best_columns(w, n),
            ),
        ),
        Variant("indices as a list", lambda w, n: (w[:, _best_columns(w, n)], _best_columns(w, n).tolist())),
    ),
    hints=(
        "One norm for each input: weight.norm(dim=0).",
        "norms.topk(n_kept).indices are the columns to keep, in order of norm; .sort().values puts them in their own.",
        "weight[:, columns] is the smaller matrix.",
    ),
)


def _keep_columns_by(weight: Tensor, n_kept: int, worth: Tensor) -> tuple[Tensor, Tensor]:
    columns = worth.topk(n_kept).indices.sort().values
    return weight[:, columns], columns


# patterns.blocks -------------------------------------------------------------------------------------------------


def _keep_tiles(worth: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    """The mask that keeps the n best tiles, from the worth of each tile."""
    keep = torch.zeros(worth.numel(), dtype=torch.bool).index_fill(0, worth.flatten().topk(n_kept).indices, True)
    return keep.reshape(worth.shape).repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def _tiles(weight: Tensor, rows: int, columns: int) -> Tensor:
    return weight.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2)


def _keep_blocks(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    return _keep_tiles(_tiles(weight, rows, columns).abs().double().sum((2, 3)), rows, columns, n_kept)


def _misread_tiles(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    shape = (weight.shape[0] // rows, weight.shape[1] // columns)
    return _keep_tiles(weight.abs().reshape(*shape, rows * columns).sum(2), rows, columns, n_kept)


def _blocks_in_each_band(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    worth = _tiles(weight, rows, columns).abs().sum((2, 3))
    best = worth.topk(min(max(1, n_kept // len(worth)), worth.shape[1]), dim=1).indices
    keep = torch.zeros_like(worth, dtype=torch.bool).scatter(1, best, True)
    return keep.repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def _single_entries(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    keep = torch.zeros(weight.numel(), dtype=torch.bool)
    keep[weight.abs().flatten().topk(n_kept * rows * columns).indices] = True
    return keep.reshape(weight.shape)


def _blocks_cases(generator: torch.Generator) -> list[Case]:
    # totals of the 2 × 2 tiles: 10 and 6 above, 9 and 11 below; one entry of 9 sits in the tile of total 9
    weight = torch.tensor([[2.0, 3.0, 1.0, 2.0], [-3.0, -2.0, 2.0, 1.0], [9.0, 0.0, 3.0, -2.0], [0.0, 0.0, -3.0, 3.0]])
    return [
        Case("two of four 2 × 2 blocks, by hand", (weight, 2, 2, 2)),
        Case("six of twenty 3 × 4 blocks", (_randn(generator, 12, 20), 3, 4, 6)),
        Case("nine of twelve 4 × 2 blocks", (_randn(generator, 16, 6), 4, 2, 9)),
        Case("a transposed, non-contiguous weight", (_randn(generator, 24, 8).T, 4, 4, 5)),
    ]


BLOCKS = Exercise(
    id="patterns.blocks",
    title="A block mask",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_keep_blocks,
    cases=_blocks_cases,
    picture=lambda case, got, expected: compare_masks(got, expected, case.arguments[2]),
    mistakes=(
        Mistake(
            "blocks read across rows",
            "reshape(O/r, I/c, r·c) takes runs along a row. A block spans r rows: split both axes, then transpose.",
            _misread_tiles,
        ),
        Mistake(
            "signed sum",
            "Entries of opposite sign cancel in a plain sum. Add absolute values.",
            lambda weight, r, c, n: _keep_tiles(_tiles(weight, r, c).sum((2, 3)), r, c, n),
        ),
        Mistake(
            "largest entry decides",
            "The maximum lets one large weight save its block. The task ranks by the sum of absolute values.",
            lambda weight, r, c, n: _keep_tiles(_tiles(weight, r, c).abs().amax((2, 3)), r, c, n),
        ),
        Mistake(
            "single entries",
            "The right number of weights stays, but scattered: no block is empty, so none can be left out.",
            _single_entries,
        ),
        Mistake(
            "so many in each band",
            "The same number stays in every band of r rows. Rank all blocks of the matrix together.",
            _blocks_in_each_band,
        ),
        Mistake(
            "weakest kept",
            "The blocks with the smallest totals stayed.",
            lambda weight, r, c, n: _keep_tiles(-_tiles(weight, r, c).abs().sum((2, 3)), r, c, n),
        ),
    ),
    also_right=(
        Variant(
            "average pooling",
            lambda w, r, c, n: _keep_tiles(torch.nn.functional.avg_pool2d(w.abs()[None, None], (r, c))[0, 0], r, c, n),
        ),
        Variant(
            "a loop over blocks",
            lambda w, r, c, n: _keep_tiles(
                torch.stack([torch.stack([b.abs().sum() for b in band.split(c, 1)]) for band in w.split(r, 0)]), r, c, n
            ),
        ),
        Variant("zeros and ones", lambda w, r, c, n: _keep_blocks(w, r, c, n).float()),
    ),
    hints=(
        "Give every block two axes of its own: weight.reshape(O // rows, rows, I // columns, columns).",
        "Sum absolute values over axes 1 and 3: one total for each block. Then topk over the flattened totals.",
        "repeat_interleave along both axes blows the small mask up to the size of the weight.",
    ),
)


# patterns.nofm ---------------------------------------------------------------------------------------------------


def _compress(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().sort(dim=2, stable=True).indices[:, :, 2:].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _scattered(values: Tensor, positions: Tensor) -> Tensor:
    pairs = positions.long().unflatten(1, (-1, 2))
    dense = torch.zeros(*pairs.shape[:2], 4, dtype=torch.float64)
    return dense.scatter(2, pairs, values.double().unflatten(1, (-1, 2))).flatten(1)


def _agree_on_compressed(got: Any, expected: tuple) -> str | None:
    """Pairs agree when they stand for the same matrix: the place of a stored zero is free."""
    if close(got, expected) is None:
        return None
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected two tensors: values and positions"
    (values, wrong_values), (positions, wrong_positions) = map(tensor_like, got, expected)
    if wrong_values or wrong_positions:
        return f"values: {wrong_values}" if wrong_values else f"positions: {wrong_positions}"
    if not (positions == positions.to(torch.uint8)).all():
        return "the positions are no whole numbers from 0 to 3"
    positions = positions.long()  # the difference of two bytes is never negative
    if not (positions < 4).all():
        return f"a position is {int(positions.max())}: expected places in the group of four, 0 to 3"
    if not (positions.unflatten(1, (-1, 2)).diff(dim=2) > 0).all():
        return "the two positions of a group are not in ascending order"
    return close(_scattered(values, positions), _scattered(*expected))


def _compress_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 8.0, 5.0, -6.0, 7.0], [9.0, 1.0, 2.0, -3.0, 0.5, 0.0, 0.0, 0.0]])
    return [
        Case("2 × 8 worked by hand", (weight,)),
        Case("12 × 48, drawn", (_randn(generator, 12, 48),)),
        Case("a group of zeros", (torch.cat([torch.zeros(3, 4), _randn(generator, 3, 4)], dim=1),)),
        Case("a transposed, non-contiguous weight", (_randn(generator, 16, 8).T,)),
    ]


def _compress_as_columns(weight: Tensor) -> tuple[Tensor, Tensor]:
    values, positions = _compress(weight)
    return values, positions + 4 * (torch.arange(positions.shape[1]) // 2)


def _compress_by_size(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2).indices
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_weakest(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().sort(dim=2, stable=True).indices[:, :, :2].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_interleaved(weight: Tensor) -> tuple[Tensor, Tensor]:
    return _compress(weight.unflatten(1, (4, -1)).transpose(1, 2).flatten(1))


def _compress_down(weight: Tensor) -> tuple[Tensor, Tensor]:
    values, positions = _compress(weight.T)
    return values.T, positions.T


NOFM = Exercise(
    id="patterns.nofm",
    title="Compress to 2:4",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_compress,
    cases=_compress_cases,
    agree=_agree_on_compressed,
    mistakes=(
        Mistake(
            "columns instead of places",
            "These are column numbers. A place in a group of four is 0 to 3 and fits two bits; a column does not.",
            _compress_as_columns,
        ),
        Mistake(
            "larger one first",
            "The two of a group come in order of size. Hardware expects them in order of their place.",
            _compress_by_size,
        ),
        Mistake(
            "absolute values stored",
            "The signs are lost. Rank by absolute value, then store the weights themselves.",
            lambda weight: _compress(weight.abs()),
        ),
        Mistake("weakest kept", "The two smallest of each group stayed.", _compress_weakest),
        Mistake(
            "rank keeps the sign",
            "The two largest signed values stayed: a weight of −4 lost against 2. Rank by absolute value.",
            lambda weight: _compress_signed(weight),
        ),
        Mistake(
            "interleaved groups",
            "A group is four neighbouring inputs. Here it is every (I/4)-th: unflatten as (−1, 4), not (4, −1).",
            _compress_interleaved,
        ),
        Mistake(
            "groups down the outputs",
            "The groups run down a column. A dot product runs along the inputs, and there the zeros must be regular.",
            _compress_down,
        ),
    ),
    also_right=(
        Variant("a mask first", lambda weight: _compress_by_mask(weight)),
        Variant("positions in one byte", lambda w: (_compress(w)[0], _compress(w)[1].to(torch.uint8))),
        Variant("topk, then sort", lambda w: _compress_sorted_topk(w)),
    ),
    hints=(
        "weight.unflatten(1, (-1, 4)) gives every group of four neighbours an axis of its own.",
        "topk(2) of the absolute values gives places in order of size; sort them along the same axis.",
        "groups.gather(2, positions) picks the weights; flatten(1) brings both back to (O, I / 2).",
    ),
)


def _compress_signed(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.sort(dim=2, stable=True).indices[:, :, 2:].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_by_mask(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.reshape(-1, 4)
    keep = groups.abs().argsort(1).argsort(1) >= 2
    half = (weight.shape[0], weight.shape[1] // 2)
    return groups[keep].reshape(half), (keep.nonzero()[:, 1]).reshape(half)


def _compress_sorted_topk(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions, _ = groups.abs().topk(2, dim=2).indices.sort(dim=2)
    return torch.take_along_dim(groups, positions, 2).flatten(1), positions.flatten(1)


# patterns.pack ---------------------------------------------------------------------------------------------------


def _pack(positions: Tensor, shifts: tuple[int, ...] = (0, 2, 4, 6)) -> Tensor:
    padded = pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (-1, 4))
    return (padded << torch.tensor(shifts)).sum(2).to(torch.uint8)


def _pack_strided(positions: Tensor) -> Tensor:
    padded = pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (4, -1))
    return (padded << torch.tensor([[0], [2], [4], [6]])).sum(1).to(torch.uint8)


def _pack_nibbles(positions: Tensor) -> Tensor:
    padded = pad(positions.long(), (0, positions.shape[1] % 2)).unflatten(1, (-1, 2))
    return (padded << torch.tensor([0, 4])).sum(2).to(torch.uint8)


def _pack_cases(generator: torch.Generator) -> list[Case]:
    def drawn(*shape: int) -> Tensor:
        return torch.randint(0, 4, shape, generator=generator, dtype=torch.uint8)

    return [
        # 1 + 3 · 4 + 0 · 16 + 2 · 64 = 141
        Case("1, 3, 0, 2 and 2, 0, 1, 1 by hand", (torch.tensor([[1, 3, 0, 2, 2, 0, 1, 1]], dtype=torch.uint8),)),
        Case("9 × 24, drawn", (drawn(9, 24),)),
        Case("six in a row: the last byte is half full", (drawn(5, 6),)),
        Case("one in a row", (torch.tensor([[3], [1]], dtype=torch.uint8),)),
        Case("int64, as the last exercise returns them", (drawn(4, 10).long(),)),
    ]


PACK = Exercise(
    id="patterns.pack",
    title="Four places in a byte",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_pack,
    cases=_pack_cases,
    mistakes=(
        Mistake(
            "first place on top",
            "The first place sits in the highest two bits. Here the lowest come first: place j is shifted by 2 · j.",
            lambda positions: _pack(positions, (6, 4, 2, 0)),
        ),
        Mistake(
            "four bits a place",
            "Two places a byte: half the bits are always zero. A place below 4 needs two bits.",
            _pack_nibbles,
        ),
        Mistake(
            "one bit apart",
            "The shifts are 0, 1, 2, 3, so neighbours overlap. A two-bit code needs shifts of two.",
            lambda positions: _pack(positions, (0, 1, 2, 3)),
        ),
        Mistake(
            "strided",
            "Byte b holds places b, b + P, b + 2P, …. It should hold four neighbours: unflatten as (−1, 4).",
            _pack_strided,
        ),
        Mistake(
            "rows run into each other",
            "The whole matrix was packed as one row, so a byte holds the end of one row and the start of the next.",
            lambda positions: _pack(positions.reshape(1, -1)),
        ),
    ),
    also_right=(
        Variant(
            "powers of four",
            lambda p: (pad(p.long(), (0, -p.shape[1] % 4)).unflatten(1, (-1, 4)) * torch.tensor([1, 4, 16, 64])).sum(2),
        ),
        Variant("a loop", lambda p: _pack_in_a_loop(p)),
    ),
    hints=(
        "Pad each row with zeros to a multiple of four, then give every four neighbours an axis of their own.",
        "Shift the four by 0, 2, 4 and 6 bits: << torch.tensor([0, 2, 4, 6]).",
        "The shifted codes share no bit, so their sum is their union. Convert to torch.uint8 at the end.",
    ),
)


def _pack_in_a_loop(positions: Tensor) -> Tensor:
    packed = torch.zeros(positions.shape[0], math.ceil(positions.shape[1] / 4), dtype=torch.uint8)
    for place in range(positions.shape[1]):
        packed[:, place // 4] |= positions[:, place].to(torch.uint8) << (2 * (place % 4))
    return packed


# patterns.bytes --------------------------------------------------------------------------------------------------


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


# patterns.bitmap -------------------------------------------------------------------------------------------------


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
    """The arguments that stand for a matrix: its non-zeros, its map, its width."""
    keep = pad((dense != 0).long(), (0, -dense.shape[1] % 8)).unflatten(1, (-1, 8))
    return dense[dense != 0], (keep << torch.arange(8)).sum(2).to(torch.uint8), dense.shape[1]


def _bitmap_cases(generator: torch.Generator) -> list[Case]:
    def drawn(rows: int, columns: int, density: float) -> Tensor:
        return _randn(generator, rows, columns) * (torch.rand(rows, columns, generator=generator) < density)

    by_hand = torch.tensor([[0.0, 7, 0, 0, 8, 0, 0, 0, 0, 0], [0.0] * 10, [1.0, 0, 0, 0, 0, 0, 0, 2, 0, 3]])
    return [
        Case("3 × 10 by hand, its middle row empty", _as_bitmap(by_hand)),
        Case("9 × 24, a third stored", _as_bitmap(drawn(9, 24, 0.3))),
        Case("a width that is no multiple of 8: 6 × 13", _as_bitmap(drawn(6, 13, 0.5))),
        Case("narrower than a byte", _as_bitmap(drawn(11, 5, 0.5))),
    ]


def _first_bit_on_top(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    return _fill(_bits(bitmap, tuple(range(7, -1, -1)))[:, :columns], values[: int(_bits(bitmap).sum())])


def _stream(bitmap: Tensor, columns: int) -> Tensor:
    return _bits(bitmap).flatten()[: bitmap.shape[0] * columns].reshape(-1, columns)


def _one_stream(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    keep = _stream(bitmap, columns)
    return _fill(keep, values[: int(keep.sum())])


def _values_from_the_start(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    keep = _bits(bitmap)[:, :columns]
    return torch.stack([_fill(row, values[: int(row.sum())]) for row in keep])


BITMAP = Exercise(
    id="patterns.bitmap",
    title="Read a bitmap",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_unpack_bitmap,
    cases=_bitmap_cases,
    mistakes=(
        Mistake(
            "highest bit first",
            "The first column of a byte is its lowest bit here. numpy.unpackbits reads from the top by default.",
            _first_bit_on_top,
        ),
        Mistake(
            "rows run into each other",
            "The map was read as one stream of bits. Each row begins on a byte of its own; spare bits are skipped.",
            _one_stream,
            also=(
                # without cutting the values to fit, filling raises where the two counts differ
                lambda values, bitmap, columns: _fill(_stream(bitmap, columns), values),
            ),
        ),
        Mistake(
            "every row starts with the first value",
            "The values continue from row to row: row o begins after all that the rows before it store.",
            _values_from_the_start,
        ),
        Mistake(
            "filled column by column",
            "The values come row by row. Filling the transposed matrix puts them in the order of columns.",
            lambda values, bitmap, columns: _fill(_bits(bitmap)[:, :columns].T, values).T,
        ),
        Mistake(
            "spare bits returned",
            "The last byte of a row has bits beyond the last column. Cut the row to its width.",
            lambda values, bitmap, columns: _fill(_bits(bitmap), values),
        ),
    ),
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
        "flatten(1) lines the bits of a row up; the first `columns` of them are the row.",
        "dense[keep] = values fills True entries row by row, which is the order of the values.",
    ),
)


def _unpack_in_a_loop(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    dense, left = torch.zeros(bitmap.shape[0], columns), iter(values.tolist())
    for row in range(bitmap.shape[0]):
        for column in range(columns):
            if int(bitmap[row, column // 8]) >> (column % 8) & 1:
                dense[row, column] = next(left)
    return dense


# patterns.break_even ---------------------------------------------------------------------------------------------


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


# patterns.dynamic ------------------------------------------------------------------------------------------------


def _keep_inputs(inputs: Tensor, worth: Tensor, k: int) -> Tensor:
    keep = torch.zeros_like(inputs, dtype=torch.bool).scatter(1, worth.topk(k, dim=1).indices, True)
    return inputs * keep


def _dynamic(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs, inputs.abs(), k), weight)


def _dynamic_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
    inputs = torch.tensor([[1.0, -3.0, 2.0], [4.0, 1.0, 0.5]])
    return [
        Case("two tokens by hand, one input each", (weight, inputs, 1)),
        Case("17 tokens, 40 inputs, ten stay", (_randn(generator, 24, 40), _randn(generator, 17, 40), 10)),
        Case("as many tokens as inputs", (_randn(generator, 6, 12), _randn(generator, 12, 12), 5)),
        Case("all stay", (_randn(generator, 8, 5), _randn(generator, 3, 5), 5)),
    ]


def _static_inputs(weight: Tensor, inputs: Tensor, k: int) -> Tensor:
    return linear(_keep_inputs(inputs, inputs.abs().mean(0).expand_as(inputs), k), weight)


DYNAMIC = Exercise(
    id="patterns.dynamic",
    title="A pattern that depends on the input",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_dynamic,
    cases=_dynamic_cases,
    mistakes=(
        Mistake(
            "one choice for all tokens",
            "The same inputs stay for every token: that is static. Choose for each token from its own values.",
            _static_inputs,
        ),
        Mistake(
            "rank keeps the sign",
            "A large negative activation matters as much as a positive one. Rank by absolute value.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, inputs, k), weight),
        ),
        Mistake(
            "smallest kept",
            "The k smallest activations of each token stayed.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, -inputs.abs(), k), weight),
        ),
        Mistake(
            "chosen by the weight",
            "These inputs have the largest weight columns, whatever the token: that is a static pattern.",
            lambda weight, inputs, k: linear(_keep_inputs(inputs, weight.norm(dim=0).expand_as(inputs), k), weight),
        ),
        Mistake(
            "scaled up like dropout",
            "The output is scaled by I / k. What stays is exact here; scaling makes it worse.",
            lambda weight, inputs, k: _dynamic(weight, inputs, k) * inputs.shape[1] / k,
        ),
    ),
    also_right=(
        Variant(
            "token by token",
            lambda w, x, k: torch.stack([w[:, i] @ t[i] for t, i in zip(x, x.abs().topk(k).indices, strict=True)]),
        ),
        Variant("squares", lambda w, x, k: _keep_inputs(x, x.square(), k) @ w.T),
        Variant("float64", lambda w, x, k: _dynamic(w.double(), x.double(), k)),
    ),
    hints=(
        "inputs.abs().topk(k, dim=1).indices holds k columns for each token.",
        "Start from a mask of False, scatter True along dim 1, and multiply the inputs with it.",
        "The product of a linear layer is inputs @ weight.T.",
    ),
)


EXERCISES = (COLUMNS, BLOCKS, NOFM, PACK, BYTES, BITMAP, BREAK_EVEN, DYNAMIC)
