"""Allocations: each layer gets its own sparsity, while the sparsity of the whole model stays S.

Dimension key: O outputs of a layer, I its inputs.

An allocation uses the dense model before any layer is pruned. The calibration windows run once through all blocks, and
the scores of one block are computed at a time. So nothing as large as the model is ever in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.sparsity.patterns import Pattern
from course_lib.sparsity.ranking import check_score

# Scores of the dense model under some pruner, block by block: {"blocks.0.mlp.up_proj": (O, I), ...}.
Scores = dict[str, Float[Tensor, "O I"]]
Scan = Callable[[LayerPruner], Iterator[Scores]]


class Allocation(ABC):
    """Chooses the sparsity of each layer."""

    def check(self, pattern: Pattern) -> None:
        """Raise ValueError for a pattern whose sparsity this allocation cannot vary."""
        if "sparsity" not in {field.name for field in fields(pattern)}:
            raise ValueError(
                f"got {pattern} with {self}; expected a pattern with a sparsity to vary, such as Unstructured(0.5). "
                "With N:M every layer has the same sparsity: leave the allocation out."
            )

    @abstractmethod
    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        """Return the sparsity of each layer by name; layers that are missing keep the pruner's own pattern."""

    def pattern(self, pattern: Pattern, sparsity: float) -> Pattern:
        """Return the pruner's pattern with the sparsity of one layer."""
        return replace(pattern, sparsity=sparsity)


@dataclass(frozen=True)
class Uniform(Allocation):
    """Every layer gets the pruner's own pattern. The dense model is not needed."""

    def check(self, pattern: Pattern) -> None:
        return

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        return {}


UNIFORM = Uniform()


def check_layer_score(layer: str, score: Tensor) -> None:
    """Return a score that can be ranked. Raise ValueError, with the layer's name, for any other score."""
    try:
        check_score(score)
    except ValueError as error:
        raise ValueError(f"layer {layer!r}: {error}") from None
