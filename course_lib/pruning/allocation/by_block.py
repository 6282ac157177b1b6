"""Sparsities given by the caller, one per block: all layers of a block lose the same fraction of their weights."""

from dataclasses import dataclass

from course_lib.pruning.allocation.base import Allocation, Scan
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.sparsity.ranking import check_sparsity


@dataclass(frozen=True)
class ByBlock(Allocation):
    """S_l is entry l of `shares`, which has one entry per block; the pruner's own sparsity is ignored."""

    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.shares, tuple):
            raise ValueError(f"got shares {self.shares!r}; expected a tuple of sparsities, one for each block.")
        for share in self.shares:
            check_sparsity(share)

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        layers_in = [list(scores) for scores in scan(Magnitude())]  # which uses no calibration text
        if len(layers_in) != len(self.shares):
            raise ValueError(f"got {len(self.shares)} shares for {len(layers_in)} blocks; expected one for each block.")
        return {layer: share for layers, share in zip(layers_in, self.shares, strict=True) for layer in layers}
