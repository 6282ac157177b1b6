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

from course_lib.pruning.base import LayerPruner
from course_lib.sparsity.patterns import Pattern
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
                "With N:M every layer has the same sparsity: leave the allocation out."
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


def check_layer_score(layer: str, score: Tensor) -> None:
    """A score that can be ranked. Raises ValueError naming the layer for any other."""
    try:
        check_score(score)
    except ValueError as error:
        raise ValueError(f"layer {layer!r}: {error}") from None
