"""What a layer's inputs were: their Gram matrix, summed while calibration runs, and the check of weight and inputs.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.layerwise.cholesky import Factor, factorise
from course_lib.sparsity.ranking import all_finite, check_matrix, check_positive

Needs = Literal["nothing", "diagonal", "matrix"]
STRIP = 192  # columns of a strip of the Gram matrix: wide enough for a fast product, narrow enough to skip the rest


class Gram:
    """The Gram matrix XᵀX of a layer's inputs X (N, I), summed over calibration batches in float32.

    It is the Hessian of the layer's squared error ‖XW'ᵀ − XWᵀ‖² up to a factor (SparseGPT's code has 2/n): no score
    and no update depends on that factor, since damping is relative to the mean diagonal. Only losses scale with it.

    Cost: I² FLOPs a token, half of the plain product, because only the upper triangle is summed; the diagonal, all
    that Wanda reads, takes 2·I. So the full matrix is kept only for pruners that need it.
    """

    def __init__(self, n_inputs: int, needs: Needs = "matrix", device: torch.device | str = "cpu"):
        check_positive("n_inputs", n_inputs)
        self.n_tokens = 0
        self.n_inputs = n_inputs
        self._needs = needs
        self._diagonal = torch.zeros(n_inputs, device=device)
        self._matrix = torch.zeros(n_inputs, n_inputs, device=device) if needs == "matrix" else None
        self._mirrored = True  # whether the lower triangle is that of the upper one
        self._factors: dict[float, Factor] = {}

    def add(self, inputs: Float[Tensor, "... I"]) -> None:
        """Add a batch of inputs; all axes but the last are tokens.

        Raises:
            ValueError: for inputs of another width.
        """
        if inputs.shape[-1:] != (self.n_inputs,):
            raise ValueError(
                f"got inputs of shape {tuple(inputs.shape)}; expected {self.n_inputs} along the last axis, as many as "
                "the layer has inputs. Give what this layer reads, or make a Gram of that width."
            )
        x = inputs.detach().reshape(-1, inputs.shape[-1]).float()
        self.n_tokens += x.shape[0]
        self._factors.clear()
        if self._needs == "matrix":
            self._mirrored = False
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
        """XᵀX. Raises ValueError unless the pruner said that it needs it."""
        self._require("matrix", allowed=("matrix",))
        if not self._mirrored:
            self._matrix = self._matrix.triu() + self._matrix.triu(1).T
            self._mirrored = True
        return self._matrix

    def factor(self, damping: float) -> Factor:
        """The factor of the damped inverse, made once for all layers that read this input.

        Raises:
            ValueError: before any input was added, or where the inputs held NaN.
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
        """What it holds, factors included."""
        held = [self._diagonal, self._matrix, *(factor.upper for factor in self._factors.values())]
        return sum(tensor.nbytes for tensor in held if tensor is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a factorisation had to change, such as more damping, in words; empty when nothing."""
        return tuple(dict.fromkeys(note for factor in self._factors.values() for note in factor.notes))

    def _require(self, part: str, allowed: tuple[str, ...]) -> None:
        if self._needs not in allowed:
            raise ValueError(f"the Gram's {part} was not collected; set needs = {part!r} in the pruner's class.")


def check_layer(weight: object, inputs: object, needs: Needs) -> None:
    """A weight and the inputs of the same layer, both finite: what every method may rely on.

    The diagonal speaks for the whole Gram matrix: by Cauchy and Schwarz no other sum is larger than both of its own.

    Raises:
        ValueError: where they are no such pair, or the inputs lack what a method with these `needs` reads.
    """
    check_matrix("weight", weight)
    if not isinstance(inputs, Gram):
        raise ValueError(
            f"got inputs of type {type(inputs).__name__}; expected a Gram. Make one with Gram({weight.shape[1]}), and "
            "give it the layer's inputs with add(inputs)."
        )
    if weight.shape[0] == 0 or weight.shape[1] != inputs.n_inputs:
        raise ValueError(
            f"got a weight of shape {tuple(weight.shape)} with the Gram of {inputs.n_inputs} inputs; expected at least "
            f"one row, and {inputs.n_inputs} columns. Give weight and inputs of the same layer, the weight as "
            "(outputs, inputs)."
        )
    if weight.is_meta:
        raise ValueError("got a weight on the meta device, without data; load the model's weights first.")
    if not all_finite(weight):
        raise ValueError(
            f"got a weight with {int((~weight.isfinite()).sum())} NaN or infinite entries; expected finite numbers. "
            "Load a sound checkpoint."
        )
    if needs == "nothing":
        return
    inputs.check_tokens()
    if not bool(inputs.diagonal.isfinite().all()):
        raise ValueError(
            f"got a Gram matrix with {int((~inputs.diagonal.isfinite()).sum())} NaN or infinite entries on its "
            "diagonal; expected finite sums. Look for NaN in the calibration inputs, or for activations that overflow."
        )
