"""The Gram matrix of a layer's inputs, accumulated during calibration, and the validation of weight and inputs.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.layerwise.cholesky import Factor, factorise
from course_lib.sparsity.ranking import all_finite, check_matrix, check_positive

Needs = Literal["nothing", "diagonal", "matrix"]
STRIP = 192  # columns per strip: wide enough for a fast product, narrow enough to skip most of the lower triangle


class Gram:
    """The Gram matrix XᵀX of a layer's inputs X (N, I), summed over calibration batches in float32.

    The Hessian of the layer's squared error ‖XW'ᵀ − XWᵀ‖² with respect to a row of W' is 2 XᵀX; SparseGPT's code uses
    (2/n) XᵀX. Scores rank the same and updates are equal for every such factor, because damping is relative to the mean
    diagonal. Only the losses scale with it.

    Cost: I² FLOPs per token, half of the full product, because only the upper triangle is computed. The diagonal, from
    which Wanda computes its score, takes 2 I FLOPs per token, so the full matrix is kept only for pruners that need it.
    """

    def __init__(self, n_inputs: int, needs: Needs = "matrix", device: torch.device | str = "cpu"):
        check_positive("n_inputs", n_inputs)
        self.n_tokens = 0
        self.n_inputs = n_inputs
        self._needs = needs
        self._diagonal = torch.zeros(n_inputs, device=device)
        self._matrix = torch.zeros(n_inputs, n_inputs, device=device) if needs == "matrix" else None
        self._mirrored = True  # whether the lower triangle is up to date
        self._factors: dict[float, Factor] = {}

    def add(self, inputs: Float[Tensor, "... I"]) -> None:
        """Add a batch of inputs X: G += XᵀX. All axes except the last count tokens.

        Raises:
            ValueError: for inputs of another width.
        """
        if inputs.shape[-1:] != (self.n_inputs,):
            raise ValueError(
                f"got inputs of shape {tuple(inputs.shape)}; expected {self.n_inputs} along the last axis, as many as "
                "the layer has inputs. Pass the inputs of this layer, or create a Gram of that width."
            )
        x = inputs.detach().reshape(-1, inputs.shape[-1]).float()
        self.n_tokens += x.shape[0]
        self._factors.clear()
        if self._needs == "matrix":
            self._mirrored = False
            # Rows start … start + STRIP of the upper triangle: G[s, s:] += X[:, s]ᵀ X[:, s:]
            for start in range(0, self.n_inputs, STRIP):
                self._matrix[start : start + STRIP, start:].addmm_(x[:, start : start + STRIP].T, x[:, start:])
        elif self._needs == "diagonal":
            self._diagonal += x.square().sum(dim=0)

    @property
    def diagonal(self) -> Float[Tensor, "I"]:
        """Σ_n X_nj²: the squared norm of each input feature."""
        self._require("diagonal", allowed=("diagonal", "matrix"))
        return self._matrix.diagonal() if self._needs == "matrix" else self._diagonal

    @property
    def matrix(self) -> Float[Tensor, "I I"]:
        """XᵀX. Raises ValueError unless the Gram was created with needs="matrix"."""
        self._require("matrix", allowed=("matrix",))
        if not self._mirrored:
            self._matrix = self._matrix.triu() + self._matrix.triu(1).T
            self._mirrored = True
        return self._matrix

    def factor(self, damping: float) -> Factor:
        """Return the Cholesky factor of the damped inverse, computed once for all layers with this input.

        Raises:
            ValueError: before any input was added, or for inputs with NaN or infinities.
        """
        self.check_tokens()
        if damping not in self._factors:
            self._factors[damping] = factorise(self.matrix, damping)
        return self._factors[damping]

    def check_tokens(self) -> None:
        """Raises ValueError before any input was added."""
        if self.n_tokens == 0:
            raise ValueError("got a Gram matrix without any calibration token; expected some. Call add(inputs) first.")

    @property
    def n_bytes(self) -> int:
        """Memory footprint in bytes, including the factors."""
        tensors = [self._diagonal, self._matrix, *(factor.upper for factor in self._factors.values())]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages of the factorisations, such as raised damping. Empty if nothing was changed."""
        return tuple(dict.fromkeys(note for factor in self._factors.values() for note in factor.notes))

    def _require(self, part: str, allowed: tuple[str, ...]) -> None:
        if self._needs not in allowed:
            raise ValueError(f"the Gram's {part} was not collected; set needs = {part!r} in the pruner's class.")


def check_layer(weight: object, inputs: object, needs: Needs) -> None:
    """Check that weight and inputs belong to one layer and are finite, so that methods need not check it themselves.

    Checking the Gram's diagonal is enough: |G_ij| ≤ √(G_ii G_jj) by the Cauchy-Schwarz inequality.

    Raises:
        ValueError: for a weight and inputs that do not match or are not finite, or a Gram that did not collect the part
            that `needs` names.
    """
    check_matrix("weight", weight)
    if not isinstance(inputs, Gram):
        raise ValueError(
            f"got inputs of type {type(inputs).__name__}; expected a Gram. Create one with Gram({weight.shape[1]}) "
            "and pass the layer's inputs to add(inputs)."
        )
    if weight.shape[0] == 0 or weight.shape[1] != inputs.n_inputs:
        raise ValueError(
            f"got a weight of shape {tuple(weight.shape)} with the Gram of {inputs.n_inputs} inputs; expected at least "
            f"one row, and {inputs.n_inputs} columns. Pass weight and inputs of the same layer, the weight as "
            "(outputs, inputs)."
        )
    if weight.is_meta:
        raise ValueError("got a weight on the meta device, without data; load the model's weights first.")
    if not all_finite(weight):
        raise ValueError(
            f"got a weight with {int((~weight.isfinite()).sum())} NaN or infinite entries; expected finite numbers. "
            "Load the checkpoint again, or use another one."
        )
    if needs == "nothing":
        return
    inputs.check_tokens()
    if not bool(inputs.diagonal.isfinite().all()):
        raise ValueError(
            f"got a Gram matrix with {int((~inputs.diagonal.isfinite()).sum())} NaN or infinite entries on its "
            "diagonal; expected finite sums. Look for NaN in the calibration inputs, or for activations that overflow."
        )
