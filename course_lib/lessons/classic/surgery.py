"""The surgeon with formulas from elsewhere, such as a student's own.

Dimension key: d free weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.surfaces import Inverse


@dataclass(frozen=True)
class ByFormulas(Inverse):
    """An error surface whose prices and updates are computed by two functions, in float32.

    price: (weight, inverse) -> what each deletion costs. update: (weight, inverse, q) -> the weights without q.
    """

    price: Callable[[Tensor, Tensor], Tensor]
    update: Callable[[Tensor, Tensor, int], Tensor]

    def saliency(self, theta: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
        return self.price(theta.float(), self.inverse.float()).to(theta.dtype)

    def change(self, theta: Float[Tensor, "d"], q: int) -> Float[Tensor, "d"]:
        return self.update(theta.float(), self.inverse.float(), q).to(theta.dtype) - theta

    def without(self, q: int) -> "ByFormulas":
        return replace(self, inverse=super().without(q).inverse)
