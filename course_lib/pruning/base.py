"""What every layer-wise pruner shares: what a layer's inputs were (Gram), and score, then keep.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.sparsity.patterns import Pattern, Unstructured

Needs = Literal["nothing", "diagonal", "matrix"]


class Gram:
    """The Gram matrix XᵀX of a layer's inputs X (N, I), summed over calibration batches in float32.

    Cost: the matrix takes 2·I² FLOPs a token, about as much as the layer itself; the diagonal, all that Wanda reads,
    takes 2·I. So the full matrix is kept only for pruners that need it.
    """

    def __init__(self, n_inputs: int, needs: Needs = "matrix", device: torch.device | str = "cpu"):
        self.n_tokens = 0
        self.n_inputs = n_inputs
        self._needs = needs
        self._diagonal = torch.zeros(n_inputs, device=device)
        self._matrix = torch.zeros(n_inputs, n_inputs, device=device) if needs == "matrix" else None

    def add(self, inputs: Float[Tensor, "... I"]) -> None:
        """Add a batch of inputs; all axes but the last are tokens."""
        x = inputs.detach().reshape(-1, inputs.shape[-1]).float()
        self.n_tokens += x.shape[0]
        if self._needs == "matrix":
            self._matrix.addmm_(x.T, x)
        elif self._needs == "diagonal":
            self._diagonal += x.square().sum(dim=0)

    @property
    def diagonal(self) -> Float[Tensor, "I"]:
        """Σ_n X_nj²: the squared norm of each input feature."""
        self._require("diagonal", allowed=("diagonal", "matrix"))
        return self._matrix.diagonal() if self._needs == "matrix" else self._diagonal

    @property
    def matrix(self) -> Float[Tensor, "I I"]:
        """XᵀX. Raises ValueError unless the pruner said that it needs it."""
        self._require("matrix", allowed=("matrix",))
        return self._matrix

    def _require(self, part: str, allowed: tuple[str, ...]) -> None:
        if self._needs not in allowed:
            raise ValueError(f"the Gram's {part} was not collected; set needs = {part!r} in the pruner's class.")


@dataclass
class LayerPruner(ABC):
    """Prunes one weight matrix at a time from its values and its inputs. A method is a subclass with a `score`."""

    pattern: Pattern = field(default_factory=Unstructured)
    needs: ClassVar[Needs] = "matrix"

    @abstractmethod
    def score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """How much each weight is worth; the highest stay. Only comparisons within a group of the pattern count."""

    def prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        """The weight with zeros where the pattern drops it. Methods that also update the kept weights override this."""
        return weight.masked_fill(~self.pattern.keep(self.score(weight, inputs)), 0)
