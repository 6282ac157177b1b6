"""The exercise patterns.pack, "Four places in a byte": its cases and its named mistakes.

Dimension key: P packed bytes in a row.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _pack(positions: Tensor, shifts: tuple[int, ...] = (0, 2, 4, 6)) -> Tensor:
    padded = pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (-1, 4))
    return (padded << torch.tensor(shifts)).sum(2).to(torch.uint8)


def _pack_strided(positions: Tensor) -> Tensor:
    padded = pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (4, -1))
    return (padded << torch.tensor([[0], [2], [4], [6]])).sum(1).to(torch.uint8)


def _pack_nibbles(positions: Tensor) -> Tensor:
    padded = pad(positions.long(), (0, positions.shape[1] % 2)).unflatten(1, (-1, 2))
    return (padded << torch.tensor([0, 4])).sum(2).to(torch.uint8)


def _pack_without_padding(positions: Tensor) -> Tensor:
    return (positions.long().unflatten(1, (-1, 4)) << torch.tensor([0, 2, 4, 6])).sum(2).to(torch.uint8)


def _pack_whole_bytes(positions: Tensor) -> Tensor:
    return _pack_without_padding(positions[:, : positions.shape[1] // 4 * 4])


def _pad_in_front(positions: Tensor) -> Tensor:
    return _pack_without_padding(pad(positions.long(), (-positions.shape[1] % 4, 0)))


def _pad_always(positions: Tensor) -> Tensor:
    """4 - K % 4, where a row of whole bytes gets one more."""
    return _pack_without_padding(pad(positions.long(), (0, 4 - positions.shape[1] % 4)))


def _in_place_of_sum(positions: Tensor) -> Tensor:
    return pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (-1, 4)).sum(2).to(torch.uint8)


def _decimal(positions: Tensor) -> Tensor:
    quads = pad(positions.long(), (0, -positions.shape[1] % 4)).unflatten(1, (-1, 4))
    return (quads * torch.tensor([1, 10, 100, 1000])).sum(2).to(torch.uint8)


def _library(positions: Tensor) -> Tensor:
    from course_lib.sparsity.bitpacking import pack

    return pack(positions.to(torch.uint8), bits=2)


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
    library=_library,
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
            also=(lambda positions: _pack(positions.reshape(1, -1))[0],),
        ),
        Mistake(
            "no padding",
            "A row whose length is no multiple of four does not divide into bytes: pad it with zeros first, on the "
            "right, by -K % 4.",
            _pack_without_padding,
        ),
        Mistake(
            "last places dropped",
            "Whole bytes alone were packed, so up to three places of each row are lost. Pad the row with zeros.",
            _pack_whole_bytes,
        ),
        Mistake(
            "padded in front",
            "The zeros stand before the row and push every place along. They belong after it.",
            _pad_in_front,
        ),
        Mistake(
            "one byte too many",
            "A row of whole bytes needs no padding: -K % 4 is zero there, 4 - K % 4 is four.",
            _pad_always,
        ),
        Mistake(
            "one place a byte",
            "Nothing is packed: each place still has a byte of its own.",
            lambda positions: positions.to(torch.uint8),
        ),
        Mistake(
            "not shifted",
            "The four places were added up as they are, so no one can tell them apart: shift place j by 2 · j.",
            _in_place_of_sum,
        ),
        Mistake(
            "decimal digits",
            "Powers of ten do not fit a byte. A place of two bits is worth powers of four: 1, 4, 16, 64.",
            _decimal,
        ),
        Mistake(
            "packed down the columns",
            "A byte holds places of four rows. Four neighbours of one row share it.",
            lambda positions: _pack(positions.T).T,
        ),
        Mistake(
            "four bits apart",
            "The shifts are 0, 4, 8 and 12: two of them fall out of the byte. A place takes two bits.",
            lambda positions: _pack(positions, (0, 4, 8, 12)),
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
