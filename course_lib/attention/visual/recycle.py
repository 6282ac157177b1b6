"""Merge pruned tokens: the pruned tokens of a cell become one token. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B canvases, N visual tokens, K kept ones, C width.
"""

from math import ceil
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from course_lib.attention.visual.model import GRID
from course_lib.settings import check_count

LEAST = 1e-20  # the minimal importance, so that tokens without any importance have equal weights


class Left(NamedTuple):
    """The kept tokens: vectors, their original positions in ascending order, and their importance."""

    tokens: Float[Tensor, "B K C"]
    position: Int[Tensor, "B K"]
    importance: Float[Tensor, "B K"]


def highest(left: Left, count: int) -> Left:
    """Return the `count` most important tokens in their order; of equal ones the first.

    Raises:
        ValueError: `count` is below 1, or above the number of tokens.
    """
    n = left.importance.shape[1]
    if not 1 <= count <= n:
        raise ValueError(f"got {count} tokens to keep of {n}; expected 1 to {n}.")
    order = left.importance.argsort(dim=1, descending=True, stable=True)[:, :count].sort(dim=1).values
    return taken(left, order)


def taken(left: Left, order: Int[Tensor, "B K"]) -> Left:
    """Return the tokens at these indices."""
    tokens = left.tokens.gather(1, order[..., None].expand(-1, -1, left.tokens.shape[2]))
    return Left(tokens, left.position.gather(1, order), left.importance.gather(1, order))


def recycled(left: Left, count: int, side: int) -> Left:
    """Keep the most important tokens, and merge the rest into one token per cell: `count` tokens in all.

    The pruned tokens of one cell of side × side patches become x_c = Σ I_i x_i / Σ I_i (equations 6 and 7), with the
    position and importance of the most important of them. Merged tokens count as kept. The number of pruned tokens is
    chosen for each image so that the count is exact.

    Deviation: the public code prunes N − K + ⌊N / a²⌋ tokens of every image, whether or not these hit ⌊N / a²⌋ cells.

    Args:
        left: all tokens of the canvas.

    Raises:
        ValueError: the side is below 1, or so small that there are more cells than tokens to keep.
    """
    check_count("side", side, unit="patches")
    check_count("count", count, unit="tokens", least=0)
    n, n_cells = left.importance.shape[1], ceil(GRID / side) ** 2
    if n != GRID**2 or not n_cells <= count <= n:
        raise ValueError(
            f"got {n} tokens, {count} to keep, cells of side {side}: {n_cells} cells; expected {GRID**2} tokens, and "
            "at most as many cells as tokens to keep. Take larger cells, or keep more."
        )
    cell = cells(side)
    pruned = _pruned(left.importance, cell, count)
    weight = left.importance.clamp(min=LEAST).where(pruned, 0)
    member = one_hot(cell, n_cells).to(weight)  # (N, cells)
    total = (weight[..., None] * member).sum(dim=1)  # (B, cells)
    fused = torch.einsum("bn,nc,bnd->bcd", weight, member, left.tokens) / total.clamp(min=LEAST)[..., None]
    stands = _strongest(left.importance, pruned, cell, n_cells)
    tokens = torch.where(stands[..., None], fused[:, cell], left.tokens)
    order = (~pruned | stands).nonzero()[:, 1].view(len(tokens), count)
    return taken(Left(tokens, left.position, left.importance), order)


def cells(side: int) -> Int[Tensor, "N"]:
    """Return the cell of each patch, counted row by row."""
    along = torch.arange(GRID) // side
    return (along[:, None] * ceil(GRID / side) + along).flatten()


def _pruned(importance: Float[Tensor, "B N"], cell: Int[Tensor, "N"], count: int) -> Bool[Tensor, "B N"]:
    """Mark the m least important tokens, with the least m for N − m + (cells hit) = count; of equals the last ones."""
    n = importance.shape[1]
    order = importance.argsort(dim=1, descending=True, stable=True).flip(1)  # the lowest first
    hit = cell[order]  # (B, N)
    # A token opens its cell if no less important one is in it: then pruning it saves nothing.
    opens = ~((hit[:, :, None] == hit[:, None, :]).tril(-1).any(dim=2))
    saved = (~opens).cumsum(dim=1)
    m = (saved < n - count).sum(dim=1, keepdim=True) + (1 if count < n else 0)
    return torch.zeros_like(opens).scatter(1, order, torch.arange(n).expand_as(order) < m)


def _strongest(
    importance: Float[Tensor, "B N"], pruned: Bool[Tensor, "B N"], cell: Int[Tensor, "N"], n_cells: int
) -> Bool[Tensor, "B N"]:
    """Mark the most important pruned token of each cell; of equals the first."""
    order = importance.where(pruned, -torch.inf).argsort(dim=1, descending=True, stable=True)
    hit = cell[order]
    leads = ~((hit[:, :, None] == hit[:, None, :]).tril(-1).any(dim=2))
    return torch.zeros_like(pruned).scatter(1, order, leads) & pruned
