"""Statistics of sparse prefill: density and coverage of each layer and head.

Dimension key: L layers, H key-value heads, heads = H * G query heads, T tokens, D head dimension.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.index import BlockIndex

MEASURED = ("none", "last", "all")  # the queries whose coverage is measured


class Watch:
    """Means over all texts since the start of the `with` block, including those too short for sparse attention.

    Attributes:
        n_sparse, n_short: number of texts read with sparse attention, and in full because they are short.
    """

    def __init__(self, n_layers: int, n_heads: int, measured: str) -> None:
        if measured not in MEASURED:
            raise ValueError(f"got measured={measured!r}; expected one of {', '.join(MEASURED)}.")
        self.n_sparse = self.n_short = 0
        self._measured = measured
        # These sums move to the device of the queries, because copying a number from a GPU makes the host wait.
        self._read, self._covered, self._aware = torch.zeros(3, n_layers, n_heads, dtype=torch.float64)
        self._n_texts = torch.zeros(n_layers, 1, dtype=torch.float64)

    def count(
        self,
        layer: int,
        query: Float[Tensor, "heads T D"],
        keys: Float[Tensor, "H T D"],
        index: BlockIndex,
        scaling: float,
        is_short: bool,
    ) -> None:
        """Add the statistics of one layer for texts of one length; `query` lists all heads of the first text first."""
        n_heads = self._read.shape[1]
        n_texts = query.shape[0] // n_heads
        if self._read.device != query.device:
            totals = (total.to(query.device) for total in (self._read, self._covered, self._aware))
            self._read, self._covered, self._aware = totals
        self._n_texts[layer] += n_texts
        self._read[layer] += _by_head(index.density, n_heads)
        if index.query_aware is not None:
            self._aware[layer] += _by_head(index.query_aware, n_heads)
        if self._measured != "none":
            n_last = index.block_size if self._measured == "last" else None
            self._covered[layer] += _by_head(coverage(query, keys, index, scaling, n_last), n_heads)
        if layer == 0:
            self.n_short += n_texts if is_short else 0
            self.n_sparse += 0 if is_short else n_texts

    @property
    def density(self) -> Float[Tensor, "L heads"]:
        """Blocks read over causal blocks. Like all means below, it is NaN before the first text."""
        return self._read.cpu() / self._n_texts

    @property
    def coverage(self) -> Float[Tensor, "L heads"]:
        """Fraction of the dense attention weights that is read, a mean over the measured queries; NaN if none is."""
        coverage_sum = self._covered.cpu()
        return coverage_sum / self._n_texts if self._measured != "none" else torch.full_like(coverage_sum, torch.nan)

    @property
    def query_aware(self) -> Float[Tensor, "L heads"]:
        """Fraction of texts for which the head was query-aware; 0 under rules that have no such heads."""
        return self._aware.cpu() / self._n_texts


def _by_head(values: Tensor, n_heads: int) -> Tensor:
    """Sum over texts; `values` lists all heads of the first text first."""
    return values.view(-1, n_heads).double().sum(dim=0)
