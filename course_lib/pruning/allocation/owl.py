"""OWL, outlier weighed layerwise sparsity. Yin and others, 2023. https://arxiv.org/abs/2310.05175

Dimension key: O outputs of a layer, I its inputs.
"""

from dataclasses import dataclass

from course_lib.pruning.allocation.base import Allocation, Scan, Scores, check_layer_score
from course_lib.pruning.allocation.exact_counts import whole_weights
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.wanda import Wanda
from course_lib.settings import is_number
from course_lib.sparsity.patterns import Pattern


@dataclass(frozen=True)
class OWL(Allocation):
    """Blocks with more outliers lose fewer weights.

    Outliers of block l (section 3): D_l, the fraction of its scores |W_ij|·‖X_j‖₂ above `threshold` times their mean.
    S_l = S − λ·(D_l − D̄)/max|D_l − D̄| (section 4), equal for all layers of a block, whatever score the pruner uses.

    Deviation: the public code maps D linearly onto an interval of width 2λ and then shifts it until the plain mean over
    blocks is S, so the sparsity of a single outlier block can differ from S by up to 2λ. Here D̄ is weighted by the
    number of weights, and the block with the largest |D_l − D̄| sets the scale. So S_l is in [S − λ, S + λ], and the
    total is S.
    """

    threshold: float = 5.0  # the paper's M
    span: float = 0.08  # the paper's λ

    def __post_init__(self) -> None:
        if not (is_number(self.threshold, above=True) and is_number(self.span)):
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
        for scores in filter(None, scan(Wanda())):  # a block that stays dense has no scores
            share = outlier_ratio(scores, self.threshold)
            outliers |= dict.fromkeys(scores, share)
            shapes |= {layer: tuple(score.shape) for layer, score in scores.items()}
        total = pruner.pattern.sparsity
        return whole_weights(owl_sparsities(outliers, shapes, total, self.span), shapes, pruner.pattern, total)


def outlier_ratio(scores: Scores, threshold: float) -> float:
    """Return the fraction of a block's scores that are more than `threshold` times their mean over the block."""
    for layer, score in scores.items():
        check_layer_score(layer, score)
    size = sum(score.numel() for score in scores.values())
    edge = threshold * sum(float(score.double().sum()) for score in scores.values()) / size
    return sum(int((score > edge).sum()) for score in scores.values()) / size


def owl_sparsities(
    outliers: dict[str, float], shapes: dict[str, tuple[int, int]], total: float, span: float
) -> dict[str, float]:
    """Compute S_l = S − λ·(D_l − D̄)/max|D_l − D̄|, with D̄ weighted by the number of weights; S if all D are equal."""
    sizes = {layer: rows * columns for layer, (rows, columns) in shapes.items()}
    mean = sum(outliers[layer] * size for layer, size in sizes.items()) / sum(sizes.values())
    furthest = max(abs(value - mean) for value in outliers.values())
    scale = span / furthest if furthest > 1e-12 else 0.0
    return {layer: total - scale * (outliers[layer] - mean) for layer in shapes}
