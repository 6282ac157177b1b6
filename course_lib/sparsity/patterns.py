"""Sparsity patterns: which weights of a matrix are kept.

Dimension key: O outputs (rows), I inputs (columns), G comparison groups, S entries in a group.

A pattern turns a score into a `keep` mask of the same shape. Entries with low scores are pruned first. Counts are
exact: in a comparison group of S entries, floor(S * sparsity) are pruned, also if scores tie; among equal scores the
lower index is pruned first. A threshold would prune all tied entries or none.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.sparsity.ranking import (
    check_positive,
    check_score,
    check_sparsity,
    keep_highest,
    n_pruned,
)


def sparsity_of(tensor: Tensor) -> float:
    """Return the fraction of entries that are exactly zero; for a `keep` mask, the fraction of pruned entries."""
    return 1.0 - torch.count_nonzero(tensor).item() / tensor.numel() if tensor.numel() else 0.0


class Pattern(ABC):
    """The shape that zeros are allowed to take; `keep(score)` returns the best mask of this shape."""

    def keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        """Return True where a weight is kept: the highest scores that the pattern allows."""
        check_score(score)
        return self._keep(score)

    @abstractmethod
    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        """Compute the mask of a score that was already checked."""


@dataclass(frozen=True)
class Unstructured(Pattern):
    """Any entry may be pruned. Scores compete within a comparison group: `size` rows, `size` columns or the layer.

    If `size` does not divide the rows or columns, the last group is smaller and its count follows from its own size.
    """

    sparsity: float = 0.5
    per: str = "row"
    size: int = 1

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)
        if self.per not in ("row", "column", "layer"):
            raise ValueError(f"per={self.per!r}: expected 'row' (each output), 'column' (each input) or 'layer'")
        check_positive("size", self.size)

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        if self.per == "layer":
            return keep_highest(score.reshape(1, -1), n_pruned(score.numel(), self.sparsity)).reshape(score.shape)
        if self.per == "column":
            return self._keep_rows(score.T).T.contiguous()
        return self._keep_rows(score)

    def _keep_rows(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        rows, columns = score.shape
        whole = rows - rows % self.size
        groups = score[:whole].reshape(whole // self.size, self.size * columns)
        rest = score[whole:].reshape(1, -1)  # the ragged last group, often empty
        parts = [keep_highest(part, n_pruned(part.shape[1], self.sparsity)) for part in (groups, rest)]
        return torch.cat([part.reshape(-1) for part in parts]).reshape(score.shape)


@dataclass(frozen=True)
class NofM(Pattern):
    """n of every m consecutive inputs are KEPT (2:4 and 4:8 halve a layer; 1:4 keeps a quarter).

    2:4 is the pattern of NVIDIA's sparse tensor cores: Mishra and others, 2021. https://arxiv.org/abs/2104.08378
    """

    n: int = 2
    m: int = 4

    def __post_init__(self) -> None:
        check_positive("n", self.n)
        check_positive("m", self.m)
        if self.n >= self.m:
            raise ValueError(f"n:m = {self.n}:{self.m}: expected n < m, since n counts the weights kept; try n=2, m=4")

    @property
    def sparsity(self) -> float:
        return 1.0 - self.n / self.m

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        rows, columns = score.shape
        if columns % self.m:
            raise ValueError(
                f"a layer with {columns} inputs has no {self.n}:{self.m} pattern: expected a multiple of {self.m}; "
                f"leave this layer dense or choose an m that divides {columns}"
            )
        groups = score.reshape(rows * columns // self.m, self.m)
        return keep_highest(groups, self.m - self.n).reshape(rows, columns)


@dataclass(frozen=True)
class Rows(Pattern):
    """Prune whole outputs: those with the lowest total score. The result is a smaller dense matrix."""

    sparsity: float = 0.5

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        keep = keep_highest(_total(score, dim=1)[None], n_pruned(score.shape[0], self.sparsity))
        return keep[0][:, None].expand(score.shape).clone()


@dataclass(frozen=True)
class Columns(Pattern):
    """Prune whole inputs: those with the lowest total score. The layer before does not have to compute them."""

    sparsity: float = 0.5

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        keep = keep_highest(_total(score, dim=0)[None], n_pruned(score.shape[1], self.sparsity))
        return keep.expand(score.shape).clone()


@dataclass(frozen=True)
class Block(Pattern):
    """Prune whole tiles of rows x columns: those with the lowest total score in the layer.

    Both sizes must divide the matrix: a smaller tile at the edge would have a low total score only because of its size,
    and no block format could store it.
    """

    rows: int = 16
    columns: int = 16
    sparsity: float = 0.5

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)
        check_positive("rows", self.rows)
        check_positive("columns", self.columns)

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        if score.shape[0] % self.rows or score.shape[1] % self.columns:
            raise ValueError(
                f"a {tuple(score.shape)} matrix does not divide into {self.rows} x {self.columns} blocks; expected "
                "block sizes that divide it: choose divisors of its rows and columns"
            )
        # (O, I) -> (O/rows, rows, I/columns, columns): dimensions 1 and 3 run inside a tile
        tiles = score.unflatten(1, (-1, self.columns)).unflatten(0, (-1, self.rows))
        total = _total(_total(tiles, dim=1), dim=2)  # several times faster than both at once
        keep = keep_highest(total.reshape(1, -1), n_pruned(total.numel(), self.sparsity)).reshape(total.shape)
        return keep.repeat_interleave(self.rows, 0).repeat_interleave(self.columns, 1)


def keep_across(scores: dict[str, Tensor], sparsity: float) -> dict[str, Tensor]:
    """Rank the scores of a whole model together: layers with low scores lose more. Ties follow the dict's order."""
    check_sparsity(sparsity)
    if not scores:
        raise ValueError("no scores: expected at least one layer; pass a dict from layer name to its score matrix")
    for name, score in scores.items():
        try:
            check_score(score)
        except ValueError as error:
            raise ValueError(f"layer {name!r}: {error}") from None
    device = next(iter(scores.values())).device
    ranked = torch.cat([score.detach().flatten().to(device) for score in scores.values()])
    keep = keep_highest(ranked[None], n_pruned(len(ranked), sparsity))[0]
    parts = keep.split([score.numel() for score in scores.values()])
    return {
        name: part.reshape(score.shape).to(score.device)
        for (name, score), part in zip(scores.items(), parts, strict=True)
    }


def _total(score: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """Sum in float32 or wider: the sum of a row in half precision overflows at 65504."""
    total = score.sum(dim, dtype=torch.promote_types(score.dtype, torch.float32))
    if total.isnan().any():
        raise ValueError(
            "scores of one row, column or block hold both +inf and -inf: expected totals that compare; clamp the score"
        )
    return total
