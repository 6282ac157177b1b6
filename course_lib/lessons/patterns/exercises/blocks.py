"""The exercise patterns.blocks, "A block mask": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_masks
from course_lib.lessons.patterns.exercises.common import randn


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
        Case("six of twenty 3 × 4 blocks", (randn(generator, 12, 20), 3, 4, 6)),
        Case("nine of twelve 4 × 2 blocks", (randn(generator, 16, 6), 4, 2, 9)),
        Case("a transposed, non-contiguous weight", (randn(generator, 24, 8).T, 4, 4, 5)),
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
