"""One ranking of all scores of a model, without storing them: two passes over the layers find the pruning threshold.

Dimension key: O outputs of a layer, I its inputs, N entries of a part of a score.

The bits of a float32 have the same order as an integer (for negative numbers, reversed). So the upper 16 bits are a
coarse bin and the lower 16 bits a fine bin. The first pass counts the scores in each coarse bin, which tells us the
coarse bin of the threshold. The second pass counts the fine bins within it. Each layer stores a few thousand counts
instead of millions of scores.
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
    """One ranking of all scores of the model: layers with low scores lose more weights than others.

    The counts are exactly those of `keep_across` on the scores (as float32) of the dense model, but the scores are not
    stored. The first pass over the model counts the scores per coarse bin. The second pass finds the threshold within
    its bin. So calibration runs through the dense model twice.
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
    """Counts the weights to prune per layer if the lowest `sparsity` of all are pruned; ties go in order of layers."""

    sparsity: float
    sizes: dict[str, int] = field(default_factory=dict)
    coarse: dict[str, tuple[numpy.ndarray, numpy.ndarray]] = field(default_factory=dict)  # bins in use, their counts
    fine: dict[str, numpy.ndarray] = field(default_factory=dict)  # (65536,) in the threshold's coarse bin

    def look_coarsely(self, layer: str, score: Float[Tensor, "O I"]) -> None:
        """Count, in the first pass, the scores of the layer in each coarse bin (equal upper 16 bits)."""
        self.sizes[layer] = score.numel()
        counts = sum(torch.bincount(order >> 16, minlength=HALF) for order in _ordered(score)).cpu().numpy()
        self.coarse[layer] = counts.nonzero()[0], counts[counts > 0]

    def look_closely(self, layer: str, score: Float[Tensor, "O I"]) -> None:
        """Count, in the second pass, the fine bins (lower 16 bits) of the scores in the coarse bin of the threshold."""
        mark = self._edge()[0]
        inside = (order[order >> 16 == mark] & (HALF - 1) for order in _ordered(score))
        self.fine[layer] = sum(torch.bincount(order, minlength=HALF) for order in inside).cpu().numpy()

    def n_leaving(self) -> dict[str, int]:
        """Return the number of weights to prune per layer: all below the threshold, and as many ties at it as needed.

        Call it after both passes.
        """
        mark, n_inside = self._edge()
        within = sum(self.fine.values()).cumsum()
        last = int(numpy.searchsorted(within, n_inside))  # the fine bin of the last weight to prune
        n_tied = n_inside - (int(within[last - 1]) if last else 0) if n_inside else 0
        leaving = {}
        for layer, (marks, counts) in self.coarse.items():
            below = int(counts[marks < mark].sum()) + int(self.fine[layer][:last].sum())
            ties = min(n_tied, int(self.fine[layer][last]))
            n_tied -= ties
            leaving[layer] = below + ties
        return leaving

    def _edge(self) -> tuple[int, int]:
        """Return the coarse bin of the last weight to prune, and how many weights of that bin are pruned."""
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
    """Yield integers ≥ 0 in the order of the scores, a million at a time because they take twice the scores' memory.

    Zero has two bit patterns; both get the same number.
    """
    for part in score.flatten().split(1 << 20):
        bits = (part + 0.0).view(torch.int32).long()
        yield torch.where(bits >= 0, bits, -(1 << 31) - 1 - bits) + (1 << 31)
