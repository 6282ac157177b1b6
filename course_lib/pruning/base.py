"""The interface of all layer-wise pruners: `score`, `keep`, `prune`.

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
    """Raise ValueError unless the argument is a pattern."""
    if not isinstance(pattern, Pattern):
        raise ValueError(
            f"got pattern {pattern!r}; expected one such as Unstructured(0.5) or NofM(2, 4). "
            "Give anything else by its name, as in Refit(chooser=SparseGPT)."
        )


def check_class(name: str, value: object) -> None:
    """Raise ValueError unless the value is a class of pruner; a name or an instance is refused."""
    if not (isinstance(value, type) and issubclass(value, LayerPruner)):
        raise ValueError(f"got {name} {value!r}; expected a class of pruner, such as Wanda or SparseGPT.")


@dataclass
class LayerPruner(ABC):
    """Prunes one weight matrix at a time, using its values and its inputs. A method is a subclass with a `_score`.

    `score`, `keep` and `prune` check their arguments once. A subclass relies on that in `_score`, in `_prune` if it
    also updates the kept weights, and in `_keep` if it starts from another pruner's mask.
    """

    pattern: Pattern = field(default_factory=Unstructured)
    needs: ClassVar[Needs] = "matrix"

    def __post_init__(self) -> None:
        check_pattern(self.pattern)

    def prepare(self, inputs: Gram) -> None:
        """Do the work that layers with the same input share, such as a factorisation; the Gram stores the result."""
        return

    def score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """Score each weight (O, I); the highest are kept. Only comparisons within a group of the pattern count.

        Raises:
            ValueError: for weight and inputs that do not match or are not finite. `keep` and `prune` raise it too.
        """
        check_layer(weight, inputs, self.needs)
        return self._score(weight, inputs)

    def keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        """Return the mask (O, I), True for kept weights."""
        check_layer(weight, inputs, self.needs)
        return self._keep(weight, inputs)

    def prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """Return the weight (O, I) with zeros for pruned entries; some methods also update the kept ones."""
        check_layer(weight, inputs, self.needs)
        return self._prune(weight, inputs)

    @abstractmethod
    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """Score a layer that has already been checked."""

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return selection.keep(self.pattern, self._score(weight, inputs))

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return weight.masked_fill(~self._keep(weight, inputs), 0)
