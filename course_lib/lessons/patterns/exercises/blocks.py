"""The exercise patterns.blocks, "A block mask": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks
from course_lib.lessons.patterns.exercises.common import even_and_spiky, in_blocks


def _agree_on_blocks(got: Any, expected: Tensor, case: Case) -> str | None:
    """Masks agree if they keep whole blocks with the same sums: of two equal blocks either may be kept."""
    problem = close(got, expected)
    got, unlike = tensor_like(got, expected)
    if problem is None or unlike or not ((got == 0) | (got == 1)).all():
        return problem
    weight, rows, columns, _ = case.arguments

    def blocks(matrix: Tensor) -> Tensor:
        """(O, I) -> (blocks, entries of a block)"""
        return matrix.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2).flatten(2).flatten(0, 1)

    def n_partly_kept(mask: Tensor) -> int:
        n_kept = blocks(mask.double()).sum(1)
        return int(((n_kept > 0) & (n_kept < rows * columns)).sum())

    if part := n_partly_kept(got):
        return f"{part} blocks of {rows} × {columns} are kept only partly; {problem}"
    if n_partly_kept(expected):  # the mask of a mistake, which never agrees with whole blocks
        return problem
    mine, right = (blocks(mask.bool()).any(1) for mask in (got, expected))
    if mine.sum() != right.sum():
        return f"{int(mine.sum())} blocks are kept, expected {int(right.sum())}"
    total = blocks(weight.double().abs()).sum(1)
    return problem if close(total[mine].sort().values, total[right].sort().values) else None


def _keep_tiles(score: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    """The mask that keeps the n tiles with the highest scores."""
    keep = torch.zeros(score.numel(), dtype=torch.bool).index_fill(0, score.flatten().topk(n_kept).indices, True)
    return keep.reshape(score.shape).repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def _tiles(weight: Tensor, rows: int, columns: int) -> Tensor:
    return weight.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2)


def _keep_blocks(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    return _keep_tiles(_tiles(weight, rows, columns).abs().double().sum((2, 3)), rows, columns, n_kept)


def _library(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    from course_lib.sparsity.patterns import Block

    return Block(rows, columns, 1 - n_kept * rows * columns / weight.numel()).keep(weight.double().abs())


def _misread_tiles(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    shape = (weight.shape[0] // rows, weight.shape[1] // columns)
    return _keep_tiles(weight.abs().reshape(*shape, rows * columns).sum(2), rows, columns, n_kept)


def _by_score(weight: Tensor, rows: int, columns: int, score: Tensor, keep: Tensor) -> Tensor:
    return keep.reshape(score.shape).repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def _above(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    score = _tiles(weight, rows, columns).abs().sum((2, 3))
    return _by_score(weight, rows, columns, score, score >= score.flatten().sort(descending=True).values[n_kept - 1])


def _strictly_above(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    score = _tiles(weight, rows, columns).abs().sum((2, 3))
    return _by_score(weight, rows, columns, score, score > score.flatten().sort(descending=True).values[n_kept])


def _small_mask(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    return _keep_blocks(weight, rows, columns, n_kept)[::rows, ::columns]


def _exchanged(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    small = _keep_blocks(weight, rows, columns, n_kept)[::rows, ::columns]
    return small.repeat_interleave(rows, 1).repeat_interleave(columns, 0)


def _blocks_in_each_stripe(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    return _blocks_in_each_band(weight.T, columns, rows, n_kept).T


def _blocks_in_each_band(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    score = _tiles(weight, rows, columns).abs().sum((2, 3))
    best = score.topk(min(max(1, n_kept // len(score)), score.shape[1]), dim=1).indices
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, best, True)
    return keep.repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def _single_entries(weight: Tensor, rows: int, columns: int, n_kept: int) -> Tensor:
    keep = torch.zeros(weight.numel(), dtype=torch.bool)
    keep[weight.abs().flatten().topk(n_kept * rows * columns).indices] = True
    return keep.reshape(weight.shape)


def _blocks_cases(generator: torch.Generator) -> list[Case]:
    # totals of the 2 × 2 tiles: 10 and 6 above, 9 and 11 below; one entry of 9 sits in the tile of total 9
    weight = torch.tensor([[2.0, 3.0, 1.0, 2.0], [-3.0, -2.0, 2.0, 1.0], [9.0, 0.0, 3.0, -2.0], [0.0, 0.0, -3.0, 3.0]])
    tied = torch.tensor([[4.0, 1.0, 3.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, -1.0, -2.0, 1.0]])  # totals 5, 5 and 5
    quiet = torch.zeros(6, 8)
    quiet[2, 5] = quiet[4, 0] = 3.0  # all other blocks are zero
    return [
        Case("two of four 2 × 2 blocks, by hand", (weight, 2, 2, 2)),
        Case("six of twenty 3 × 4 blocks", (in_blocks(even_and_spiky(generator, 12, 20), 3, 4, 5), 3, 4, 6)),
        Case("nine of twelve 4 × 2 blocks", (randn(generator, 16, 6), 4, 2, 9)),
        Case("a transposed, non-contiguous weight", (in_blocks(even_and_spiky(generator, 16, 12), 4, 4, 2).T, 4, 4, 5)),
        Case("three equal blocks: two of them are kept", (tied, 2, 2, 2)),
        Case("blocks of zeros: five blocks are kept all the same", (quiet, 2, 2, 5)),
    ]


def _blocks_in_order(weight: Tensor, rows: int, columns: int, n_kept: int, descending: bool) -> Tensor:
    """The first blocks, or the last ones, whatever the weight."""
    score = torch.arange(weight.numel() // (rows * columns)).reshape(len(weight) // rows, -1)
    return _keep_tiles(-score if descending else score, rows, columns, n_kept)


BLOCKS = Exercise(
    id="patterns.blocks",
    title="A block mask",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_keep_blocks,
    cases=_blocks_cases,
    agree=_agree_on_blocks,
    picture=lambda case, got, expected: compare_masks(
        got, expected if _agree_on_blocks(got, expected, case) else got, case.arguments[2]
    ),
    library=_library,
    trivial=(
        Trivial("keeping the first blocks", lambda *a: _blocks_in_order(*a, descending=True)),
        Trivial("keeping the last blocks", lambda *a: _blocks_in_order(*a, descending=False)),
    ),
    mistakes=read_mistakes(globals()),
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
        "Sum absolute values over axes 1 and 3: one total per block. Then topk over the flattened totals.",
        "repeat_interleave along both axes enlarges the small mask to the size of the weight.",
    ),
)
