"""An error surface of two weights that can be plotted: E(w) = ½ (w − w*)ᵀ H (w − w*), and the choice of each method.

Dimension key: 2 weights.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.network import DTYPE
from course_lib.pruning.classic.obs import inverse_of
from course_lib.pruning.classic.surfaces import Diagonal, Inverse


@dataclass(frozen=True)
class Quadratic:
    """A quadratic error surface. `minimum` holds the trained weights, where the error is zero."""

    hessian: Float[Tensor, "2 2"]
    minimum: Float[Tensor, "2"]

    def error(self, weight: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
        moved = weight - self.minimum
        return 0.5 * ((moved @ self.hessian) * moved).sum(-1)


def quadratic(minimum: tuple[float, float], degrees: float = 0.0) -> Quadratic:
    """Return a surface with curvatures 4 and 1 (2 x₁² + ½ x₂²) around the trained weights, rotated by `degrees`."""
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=DTYPE)
    hessian = turn @ torch.diag(torch.tensor([4.0, 1.0], dtype=DTYPE)) @ turn.T
    return Quadratic(hessian, torch.tensor(minimum, dtype=DTYPE))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The weights that a method deletes, its estimate of the cost, the final weights, and the true cost."""

    method: str
    deletes: int
    predicted: float
    weight: Float[Tensor, "2"]
    cost: float


def choices(surface: Quadratic) -> list[Choice]:
    """Return the choices of magnitude, OBD and OBS on the surface. Magnitude has no cost estimate, so we use ½ w²."""
    views = {
        "magnitude": Diagonal(torch.ones(2, dtype=DTYPE)),
        "OBD": Diagonal(surface.hessian.diagonal()),
        "OBS": Inverse(inverse_of(surface.hessian)),
    }
    chosen = []
    for name, view in views.items():
        saliency = view.saliency(surface.minimum)
        q = int(saliency.argmin())
        weight = surface.minimum + view.change(surface.minimum, q)
        chosen.append(
            Choice(
                method=name,
                deletes=q,
                predicted=saliency[q].item(),
                weight=weight,
                cost=surface.error(weight).item(),
            )
        )
    return chosen
