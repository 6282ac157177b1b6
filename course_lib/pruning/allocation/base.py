"""Which layer loses how much: an Allocation gives every layer its own sparsity, and the model as a whole stays at S.

Dimension key: O outputs of a layer, I its inputs.

An allocation looks at the dense model before anything is pruned: one pass of the calibration windows through all
blocks, which yields the scores of one block at a time. Nothing of the size of the model is ever held.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.allocation.exact_counts import whole_weights
from course_lib.pruning.allocation.ranks import EdgeFinder
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Pattern, Unstructured
from course_lib.sparsity.ranking import check_score

# Scores of the dense model under some pruner, block by block: {"blocks.0.mlp.up_proj": (O, I), ...}.
Scores = dict[str, Float[Tensor, "O I"]]
Scan = Callable[[LayerPruner], Iterator[Scores]]


class Allocation(ABC):
    """Gives every layer its own sparsity."""

    def check(self, pattern: Pattern) -> None:
        """Raises ValueError for a pattern whose sparsity this allocation cannot vary."""
        if "sparsity" not in {field.name for field in fields(pattern)}:
            raise ValueError(
                f"got {pattern} with {self}; expected a pattern with a sparsity to vary, such as Unstructured(0.5). "
                "Every layer has the same share of N:M: leave the allocation out."
            )

    @abstractmethod
    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        """The sparsity of each layer by name; layers not named keep the pruner's own pattern."""

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        """The pruner's pattern, at the sparsity of one layer."""
        return replace(pattern, sparsity=sparsity)


@dataclass(frozen=True)
class Uniform(Allocation):
    """Every layer gets the pruner's pattern as it is. It needs no look at the model."""

    def check(self, pattern: Pattern) -> None:
        return

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        return {}


UNIFORM = Uniform()


@dataclass(frozen=True)
class OWL(Allocation):
    """Blocks with more outliers lose less. Yin and others, 2023. https://arxiv.org/abs/2310.05175

    Outliers of block l (section 3): D_l, the share of its scores |W_ij|·‖X_j‖₂ above `threshold` times their mean.
    S_l = S − λ·(D_l − D̄)/max|D_l − D̄| (section 4), the same for all layers of a block, whatever the pruner's own score.

    Deviation: the public code maps D linearly onto an interval of width 2λ and then shifts it until the plain mean over
    blocks is S, so that a lone outlier block may end up to 2λ from S. Here the mean counts weights, and the scale
    is set by the block furthest from it, so that both promises of the paper hold: [S − λ, S + λ], and S in total.
    """

    threshold: float = 5.0  # the paper's M
    span: float = 0.08  # the paper's λ

    def __post_init__(self) -> None:
        if self.threshold <= 0 or self.span < 0:
            raise ValueError(
                f"threshold={self.threshold}, span={self.span}: expected a threshold above 0 and a span of at least 0; "
                "the paper has threshold=5, span=0.08"
            )

    def check(self, pattern: Pattern) -> None:
        super().check(pattern)
        if not (self.span <= pattern.sparsity and pattern.sparsity + self.span < 1):
            raise ValueError(
                f"got sparsity {pattern.sparsity} and span {self.span}; expected both ends of sparsity ± span in "
                "[0, 1). Use another sparsity or another allocation, or OWL with a smaller span."
            )

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        outliers, shapes = {}, {}
        for scores in scan(Wanda()):
            share = outlier_ratio(scores, self.threshold)
            outliers |= dict.fromkeys(scores, share)
            shapes |= {layer: tuple(score.shape) for layer, score in scores.items()}
        total = pruner.pattern.sparsity
        return whole_weights(owl_sparsities(outliers, shapes, total, self.span), shapes, pruner.pattern, total)


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
        finder = EdgeFinder(pruner.pattern.sparsity)
        for look in (finder.look_coarsely, finder.look_closely):
            for scores in scan(pruner):
                for layer, score in scores.items():
                    _check_score(layer, score)
                    look(layer, score.float())
        return {layer: _share_of(layer, n, finder.sizes[layer]) for layer, n in finder.n_leaving().items()}

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        return Unstructured(sparsity, per="layer")


def outlier_ratio(scores: Scores, threshold: float) -> float:
    """The share of a block's scores that are more than `threshold` times their mean over the block."""
    for layer, score in scores.items():
        _check_score(layer, score)
    size = sum(score.numel() for score in scores.values())
    edge = threshold * sum(float(score.double().sum()) for score in scores.values()) / size
    return sum(int((score > edge).sum()) for score in scores.values()) / size


def owl_sparsities(
    outliers: dict[str, float], shapes: dict[str, tuple[int, int]], total: float, span: float
) -> dict[str, float]:
    """S_l = S − λ·(D_l − D̄)/max|D_l − D̄|, with D̄ the mean over weights; S everywhere where no D differs."""
    sizes = {layer: rows * columns for layer, (rows, columns) in shapes.items()}
    mean = sum(outliers[layer] * size for layer, size in sizes.items()) / sum(sizes.values())
    furthest = max(abs(value - mean) for value in outliers.values())
    scale = span / furthest if furthest > 1e-12 else 0.0
    return {layer: total - scale * (outliers[layer] - mean) for layer in shapes}


def _check_score(layer: str, score: Tensor) -> None:
    try:
        check_score(score)
    except ValueError as error:
        raise ValueError(f"layer {layer!r}: {error}") from None


def _share_of(layer: str, n_leaving: int, size: int) -> float:
    if n_leaving == size:
        raise ValueError(
            f"one ranking over the model leaves nothing of {layer}: all its scores are among the lowest. "
            "Lower the sparsity, or use OWL, which keeps every layer near it."
        )
    return n_leaving / size
