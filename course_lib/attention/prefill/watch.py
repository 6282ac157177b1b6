"""What sparse prefill did: density and coverage of each layer and head.

Dimension key: L layers, H key-value heads, heads = H * G query heads, T tokens, D size of a head.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.index import BlockIndex

MEASURED = ("none", "last", "all")  # whose coverage


class Watch:
    """Means over the texts that were read since the beginning, those too short for sparsity among them.

    Attributes:
        n_sparse, n_short: texts that were read sparsely, and in full because they are short.
    """

    def __init__(self, n_layers: int, n_heads: int, measured: str) -> None:
        if measured not in MEASURED:
            raise ValueError(f"got measured={measured!r}; expected one of {', '.join(MEASURED)}.")
        self.n_sparse = self.n_short = 0
        self._measured = measured
        # They move to the device of what is counted, because to fetch a number from a GPU is to wait for it.
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
        """Add what one layer did with texts of one length, whose heads follow one text after another."""
        n_heads = self._read.shape[1]
        n_texts = query.shape[0] // n_heads
        if self._read.device != query.device:
            moved = (each.to(query.device) for each in (self._read, self._covered, self._aware))
            self._read, self._covered, self._aware = moved
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
        """Blocks read over causal blocks; NaN before the first text, as all that follows."""
        return self._read.cpu() / self._n_texts

    @property
    def coverage(self) -> Float[Tensor, "L heads"]:
        """The share of the true attention that was read, by the queries that were measured. NaN where none was."""
        covered = self._covered.cpu()
        return covered / self._n_texts if self._measured != "none" else torch.full_like(covered, torch.nan)

    @property
    def query_aware(self) -> Float[Tensor, "L heads"]:
        """The share of texts for which the head was query-aware; 0 under rules that know no such heads."""
        return self._aware.cpu() / self._n_texts


def _by_head(values: Tensor, n_heads: int) -> Tensor:
    """Sums over texts, whose heads follow one text after another."""
    return values.view(-1, n_heads).double().sum(dim=0)
