"""Error surfaces as pruning methods see them: without the Hessian, with its diagonal, or with all of it.

Three methods, one formula: OBS with H = I is magnitude pruning, with a diagonal H it is OBD.

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
    """No correlations: L_q = ½ h_qq w_q², and nothing else moves (LeCun and others)."""

    h: Float[Tensor, "d"]

    def saliency(self, theta: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
        return 0.5 * self.h * theta.square()

    def change(self, theta: Float[Tensor, "d"], q: int) -> Float[Tensor, "d"]:
        return -theta * (torch.arange(len(theta)) == q)

    def without(self, q: int) -> "Diagonal":
        return self

    def lose(self, q: int) -> None:
        """Nothing is known of other weights."""


@dataclass(frozen=True)
class Inverse:
    """A full error surface, by the inverse of its Hessian over the weights that stay (Hassibi and Stork).

    L_q = ½ w_q² / [H⁻¹]_qq,  δw = −w_q / [H⁻¹]_qq · H⁻¹ e_q. Both minimise ½ δwᵀ H δw under w_q + δw_q = 0.
    """

    inverse: Float[Tensor, "d d"]

    def saliency(self, theta: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
        return 0.5 * theta.square() / self.inverse.diagonal()

    def change(self, theta: Float[Tensor, "d"], q: int) -> Float[Tensor, "d"]:
        change = -theta[q] / self.inverse[q, q] * self.inverse[:, q]
        change[q] = -theta[q]  # rounding would leave 1e-17 where a zero belongs
        return change

    def without(self, q: int) -> "Inverse":
        """The inverse of H without row and column q: one step of Gaussian elimination, O(d²) instead of O(d³)."""
        smaller = Inverse(self.inverse.clone())
        smaller.lose(q)
        return smaller

    def lose(self, q: int) -> None:
        """The same in place, for a surface that is not needed again: writing a new matrix takes six times as long."""
        column = self.inverse[:, q].clone()
        self.inverse.addr_(column, column, alpha=-1 / column[q].item())
        self.inverse[q], self.inverse[:, q] = 0.0, 0.0


Surface = Diagonal | Inverse
Method = Callable[[Network, Float[Tensor, "d"], Bool[Tensor, "d"], Samples], Surface]


def magnitude(network: Network, theta: Tensor, keep: Tensor, samples: Samples) -> Diagonal:
    """Han, Pool, Tran and Dally 2015: the smallest weight is deleted, as in OBD with equal curvatures."""
    return Diagonal(torch.ones_like(theta))


def brain_damage(network: Network, theta: Tensor, keep: Tensor, samples: Samples) -> Diagonal:
    """OBD, with the diagonal in the Levenberg-Marquardt form, which has no negative entries."""
    return Diagonal(obd_diagonal(network, theta, samples, curvature=False))


def brain_surgeon(network: Network, theta: Tensor, keep: Tensor, samples: Samples, alpha: float = 1e-8) -> Inverse:
    """OBS, with the inverse of the outer-product Hessian of the weights that stay.

    Args:
        alpha: added to the diagonal. For a network trained with weight decay the decay itself is the honest choice: it
            is what the objective adds to H. Smaller values let weights run far along flat directions.
    """
    slopes = output_gradients(network, theta, samples.inputs)[..., keep]
    return Inverse(embed(inverse_directly(slopes.flatten(0, 1), len(slopes), alpha), keep))


METHODS: dict[str, Method] = {"magnitude": magnitude, "OBD": brain_damage, "OBS": brain_surgeon}
