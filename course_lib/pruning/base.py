"""The seam of every layer-wise pruner: score, then keep, then prune.

Dimension key: O outputs of a layer, I its inputs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.layerwise import selection
from course_lib.pruning.layerwise.gram import Gram, Needs, check_layer
from course_lib.sparsity.patterns import Pattern, Unstructured


def check_pattern(pattern: object) -> None:
    """Raises ValueError for anything but a pattern."""
    if not isinstance(pattern, Pattern):
        raise ValueError(
            f"got pattern {pattern!r}; expected one such as Unstructured(0.5) or NofM(2, 4). "
            "Give anything else by its name, as in Refit(chooser=SparseGPT)."
        )


def check_class(name: str, value: object) -> None:
    """Raises ValueError for anything but a class of pruner: a name, or an instance."""
    if not (isinstance(value, type) and issubclass(value, LayerPruner)):
        raise ValueError(f"got {name} {value!r}; expected a class of pruner, such as Wanda or SparseGPT.")


@dataclass
class LayerPruner(ABC):
    """Prunes one weight matrix at a time from its values and its inputs. A method is a subclass with a `_score`.

    `score`, `keep` and `prune` check what they are given, once. A subclass relies on that in `_score`, in
    `_prune` where it also updates the weights that are kept, and in `_keep` where it starts from another pruner's mask.
    """

    pattern: Pattern = field(default_factory=Unstructured)
    needs: ClassVar[Needs] = "matrix"

    def __post_init__(self) -> None:
        check_pattern(self.pattern)

    def prepare(self, inputs: Gram) -> None:
        """Work that layers of one input share, done once and kept in the Gram, such as a factorisation."""
        return

    def score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """How much each weight is worth; the highest stay. Only comparisons within a group of the pattern count.

        Raises:
            ValueError: where weight and inputs are no pair, or hold what is not finite. So do `keep` and `prune`.
        """
        check_layer(weight, inputs, self.needs)
        return self._score(weight, inputs)

    def keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        """Which weights stay."""
        check_layer(weight, inputs, self.needs)
        return self._keep(weight, inputs)

    def prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """The weight with zeros where the pattern drops it, and those that stay as the method leaves them."""
        check_layer(weight, inputs, self.needs)
        return self._prune(weight, inputs)

    @abstractmethod
    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """The score, for a layer already checked."""

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return selection.keep(self.pattern, self._score(weight, inputs))

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return weight.masked_fill(~self._keep(weight, inputs), 0)
