"""Error surfaces as pruning methods model them: without the Hessian, with its diagonal, or with the full matrix.

The three methods share one formula: OBS with H = I is magnitude pruning, and with a diagonal H it is OBD.

Dimension key: P samples, d free weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.classic.derivatives import output_gradients
from course_lib.pruning.classic.network import Network, Samples
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.obs import embed, inverse_directly


@dataclass(frozen=True)
class Diagonal:
    """An error surface without correlations: L_q = ½ h_qq w_q², and no other weight changes (LeCun and others)."""

    h: Float[Tensor, "d"]

    def saliency(self, theta: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
        return 0.5 * self.h * theta.square()

    def change(self, theta: Float[Tensor, "d"], q: int) -> Float[Tensor, "d"]:
        return -theta * (torch.arange(len(theta)) == q)

    def without(self, q: int) -> "Diagonal":
        return self

    def lose(self, q: int) -> None:
        """Do nothing: without correlations, deleting q changes nothing for the other weights."""


@dataclass(frozen=True)
class Inverse:
    """A full error surface, given by the inverse of its Hessian over the kept weights (Hassibi and Stork).

    L_q = ½ w_q² / [H⁻¹]_qq,  δw = −w_q / [H⁻¹]_qq · H⁻¹ e_q. Here δw minimises ½ δwᵀ H δw under w_q + δw_q = 0, and
    L_q is the minimum.
    """

    inverse: Float[Tensor, "d d"]

    def saliency(self, theta: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
        return 0.5 * theta.square() / self.inverse.diagonal()

    def change(self, theta: Float[Tensor, "d"], q: int) -> Float[Tensor, "d"]:
        change = -theta[q] / self.inverse[q, q] * self.inverse[:, q]
        change[q] = -theta[q]  # otherwise rounding leaves values such as 1e-17 instead of zeros
        return change

    def without(self, q: int) -> "Inverse":
        """Return the inverse of H without row and column q by one elimination step: O(d²) instead of O(d³)."""
        smaller = Inverse(self.inverse.clone())
        smaller.lose(q)
        return smaller

    def lose(self, q: int) -> None:
        """Do the same as `without`, but in place: writing a new matrix takes six times as long."""
        column = self.inverse[:, q].clone()
        self.inverse.addr_(column, column, alpha=-1 / column[q].item())
        self.inverse[q], self.inverse[:, q] = 0.0, 0.0


Surface = Diagonal | Inverse
Method = Callable[[Network, Float[Tensor, "d"], Bool[Tensor, "d"], Samples], Surface]


def magnitude(network: Network, theta: Tensor, keep: Tensor, samples: Samples) -> Diagonal:
    """Delete the smallest weight, as OBD does with equal curvatures. Han, Pool, Tran and Dally, 2015."""
    return Diagonal(torch.ones_like(theta))


def brain_damage(network: Network, theta: Tensor, keep: Tensor, samples: Samples) -> Diagonal:
    """Return the surface of OBD: the diagonal in the Levenberg-Marquardt form, which has no negative entries."""
    return Diagonal(obd_diagonal(network, theta, samples, curvature=False))


def brain_surgeon(network: Network, theta: Tensor, keep: Tensor, samples: Samples, alpha: float = 1e-8) -> Inverse:
    """Return the surface of OBS: the inverse of the outer-product Hessian of the kept weights.

    Args:
        alpha: added to the diagonal. For a network trained with weight decay, the natural choice is the decay itself,
            which the objective adds to H. With smaller values, weights move far along flat directions.
    """
    slopes = output_gradients(network, theta, samples.inputs)[..., keep]
    return Inverse(embed(inverse_directly(slopes.flatten(0, 1), len(slopes), alpha), keep))


METHODS: dict[str, Method] = {"magnitude": magnitude, "OBD": brain_damage, "OBS": brain_surgeon}
