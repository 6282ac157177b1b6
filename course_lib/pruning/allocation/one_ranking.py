"""One ranking over a whole model: where it cuts, found without holding its scores, by two looks at each layer.

Dimension key: O outputs of a layer, I its inputs, N entries of a part of a score.

A float32 orders as an integer does (with the sign turned round), so its upper half is a coarse mark and its lower
half a fine one. The first look counts coarse marks; the mark where the cut falls is then known, and the second look
counts the fine marks within it. Each layer keeps a few thousand counts instead of millions of scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from course_lib.pruning.allocation.base import Allocation, Scan, check_layer_score
from course_lib.pruning.base import LayerPruner
from course_lib.sparsity.patterns import Pattern, Unstructured
from course_lib.sparsity.ranking import n_pruned

HALF = 1 << 16


@dataclass(frozen=True)
class OneRanking(Allocation):
    """One ranking of all scores of the model: layers with low scores lose more than others.

    The counts are exactly those of `keep_across` on the scores (as float32) of the dense model. They need no place for
    these scores: one pass over the model counts how many fall between coarse marks, a second resolves where the edge
    lies, so calibration runs through the dense model twice.
    """

    def check(self, pattern: Pattern) -> None:
        if not isinstance(pattern, Unstructured):
            raise ValueError(
                f"got {pattern} with {self}; expected Unstructured(...), since single weights are ranked. "
                "Use another pattern, or leave the allocation out."
            )

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        threshold = GlobalThreshold(pruner.pattern.sparsity)
        for look in (threshold.look_coarsely, threshold.look_closely):
            for scores in scan(pruner):
                for layer, score in scores.items():
                    check_layer_score(layer, score)
                    look(layer, score.float())
        return {layer: _share_of(layer, n, threshold.sizes[layer]) for layer, n in threshold.n_leaving().items()}

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        return Unstructured(sparsity, per="layer")


@dataclass
class GlobalThreshold:
    """How many weights of each layer leave when the lowest `sparsity` of all do; ties leave in the order of layers."""

    sparsity: float
    sizes: dict[str, int] = field(default_factory=dict)
    coarse: dict[str, tuple[numpy.ndarray, numpy.ndarray]] = field(default_factory=dict)  # marks present, their counts
    fine: dict[str, numpy.ndarray] = field(default_factory=dict)  # (65536,) within the mark where the cut falls

    def look_coarsely(self, layer: str, score: Float[Tensor, "O I"]) -> None:
        """The first look: how many scores of the layer share each upper half."""
        self.sizes[layer] = score.numel()
        counts = sum(torch.bincount(order >> 16, minlength=HALF) for order in _ordered(score)).cpu().numpy()
        self.coarse[layer] = counts.nonzero()[0], counts[counts > 0]

    def look_closely(self, layer: str, score: Float[Tensor, "O I"]) -> None:
        """The second look, after the first at all layers: the lower halves of scores with the upper half at the cut."""
        mark = self._edge()[0]
        inside = (order[order >> 16 == mark] & (HALF - 1) for order in _ordered(score))
        self.fine[layer] = sum(torch.bincount(order, minlength=HALF) for order in inside).cpu().numpy()

    def n_leaving(self) -> dict[str, int]:
        """Of each layer, after both looks: all below the cut, and of those that tie at it as many as still must."""
        mark, n_inside = self._edge()
        within = sum(self.fine.values()).cumsum()
        last = int(numpy.searchsorted(within, n_inside))  # the fine mark of the last that leaves
        n_tied = n_inside - (int(within[last - 1]) if last else 0) if n_inside else 0
        leaving = {}
        for layer, (marks, counts) in self.coarse.items():
            below = int(counts[marks < mark].sum()) + int(self.fine[layer][:last].sum())
            ties = min(n_tied, int(self.fine[layer][last]))
            n_tied -= ties
            leaving[layer] = below + ties
        return leaving

    def _edge(self) -> tuple[int, int]:
        """The coarse mark in which the last that leaves lies, and how many of that mark leave."""
        target = n_pruned(sum(self.sizes.values()), self.sparsity)
        marks = numpy.concatenate([marks for marks, _ in self.coarse.values()])
        counts = numpy.concatenate([counts for _, counts in self.coarse.values()])
        present, where = numpy.unique(marks, return_inverse=True)
        total = numpy.bincount(where, weights=counts).astype(numpy.int64).cumsum()
        edge = int(numpy.searchsorted(total, target))
        return int(present[edge]), target - (int(total[edge - 1]) if edge else 0)


def _share_of(layer: str, n_leaving: int, size: int) -> float:
    if n_leaving == size:
        raise ValueError(
            f"one ranking over the model leaves nothing of {layer}: all its scores are among the lowest. "
            "Lower the sparsity, or use OWL, which keeps every layer near it."
        )
    return n_leaving / size


def _ordered(score: Float[Tensor, "O I"]) -> Iterator[Int64[Tensor, "N"]]:
    """Integers in the order of the scores, from 0 on, a million at a time: they take twice the memory of the scores.

    Zero has two bit patterns and counts as one number.
    """
    for part in score.flatten().split(1 << 20):
        bits = (part + 0.0).view(torch.int32).long()
        yield torch.where(bits >= 0, bits, -(1 << 31) - 1 - bits) + (1 << 31)
