"""SparseGPT: pruning in one shot with weight updates. Frantar, Alistarh, 2023. https://arxiv.org/abs/2301.00774"""

from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.block_masks import check_blockwise
from course_lib.pruning.layerwise.cholesky import Factor
from course_lib.pruning.layerwise.gram import Gram, check_layer
from course_lib.pruning.layerwise.solver import ColumnRounder, Rounding, Solution, solve
from course_lib.settings import check_number
from course_lib.sparsity.patterns import Pattern, Unstructured
from course_lib.sparsity.ranking import check_positive


@dataclass
class SparseGPT(LayerPruner):
    """Score w²/[H⁻¹]_ii among the columns that are not frozen yet (eq. 3), and the matching update (algorithm 1).

    This is optimal brain surgeon for all rows in parallel: all rows freeze their columns in the same order, so they
    share the inverses H⁻¹ of the remaining columns, and one Cholesky factor contains all of them. Masks are chosen per
    block over all rows, or per N:M group, always from the weights as updated so far.

    With `quantization`, kept weights are also rounded, to a grid fixed from the dense weight. The same update
    compensates for both errors (section 3.5).

    Deviation: counts are exact (the public code prunes one more weight, and all ties); if the Gram matrix is singular,
    the damping grows, and a note reports it; weights that are zero before stay zero.
    """

    pattern: Pattern = field(default_factory=lambda: Unstructured(0.5, per="layer"))
    block_size: int = 128
    damping: float = 0.01
    quantization: Rounding | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("block_size", self.block_size)
        check_number("damping", self.damping)
        check_blockwise(self.pattern, self.block_size)
        instance = isinstance(self.quantization, Rounding) and not isinstance(self.quantization, type)
        if not (self.quantization is None or instance):
            raise ValueError(f"got quantization {self.quantization!r}; expected an instance such as Quantization(4).")

    def prepare(self, inputs: Gram) -> None:
        inputs.factor(self.damping)

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """Return the scores before any update, as if all columns were one block."""
        factor = inputs.factor(self.damping)
        return (weight.float() / factor.diagonal).square().masked_fill(factor.dead, 0)

    def solve(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Solution:
        """Return the pruned weight, the mask and the losses."""
        check_layer(weight, inputs, self.needs)
        return self._solve(weight, inputs)

    def _solve(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Solution:
        self.pattern.keep(weight.new_zeros(1, weight.shape[1]))  # raises if the width is no multiple of m
        factor = inputs.factor(self.damping)
        return solve(weight, factor, self.pattern, self.block_size, self._grid(weight, factor))

    def _grid(self, weight: Float[Tensor, "O I"], factor: Factor) -> ColumnRounder | None:
        """Return the quantization grid. With groups, weights of dead inputs count as zero and widen no group's range.

        Without groups they do count, as in the public code, which fixes the range of a row before it removes them.
        """
        if self.quantization is None:
            return None
        has_groups = getattr(self.quantization, "group", None) is not None
        return self.quantization.grid(weight.masked_fill(factor.dead, 0) if has_groups else weight)

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return self._solve(weight, inputs).keep

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self._solve(weight, inputs).weight.to(weight.dtype)
