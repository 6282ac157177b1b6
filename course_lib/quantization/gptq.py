"""GPTQ. Frantar, Ashkboos, Hoefler, Alistarh, 2022. https://arxiv.org/abs/2210.17323

Dimension key: O outputs of a layer, I its inputs.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.quantization.grid import Quantization, check_quantization
from course_lib.sparsity.patterns import Pattern, Unstructured


def gptq(quantization: Quantization, block_size: int = 128, damping: float = 0.01) -> SparseGPT:
    """SparseGPT without pruning: round each column, then update those to its right to compensate the error (section 3).

    Use it in place of a pruner, for example prune_model(model, gptq(Quantization(4)), calibration). Zeros stay zero, so
    a pruned model keeps its mask.

    Deviation: with groups, all grids are fixed from the dense weight before the first column is rounded, as the public
    code does with static_groups=True. By default that code fixes the grid of a group when it reaches the group, from
    weights that already include the updates for earlier columns.
    """
    check_quantization(quantization)
    return SparseGPT(Unstructured(0.0), block_size=block_size, damping=damping, quantization=quantization)


@dataclass
class RoundToNearest(LayerPruner):
    """Round every weight to the nearest value of the same grid, without inputs or updates: the baseline for GPTQ.

    With a pattern other than the default, the weights of smallest magnitude are pruned first.
    """

    pattern: Pattern = field(default_factory=lambda: Unstructured(0.0))
    quantization: Quantization = field(default_factory=Quantization)
    needs: ClassVar[Needs] = "nothing"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_quantization(self.quantization)

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return weight.abs().float()

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        pruned = super()._prune(weight, inputs)
        return self.quantization.grid(weight).round(pruned)
