"""Power laws in the attention that tokens receive: a line in log-log, compared with a line of log mass over rank.

Dimension key: T tokens, n points of a line.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class PowerLaw:
    """mass ∝ rank^slope between two ranks; `fit` is R² in log-log, `exponential` is R² of log mass over rank."""

    slope: float
    r_squared: float
    exponential_r_squared: float
    first: int
    last: int

    @staticmethod
    def fit(mass: Float[Tensor, "T"], first: int, last: int) -> "PowerLaw":
        rank = torch.arange(first, last + 1).double()
        y = mass.sort(descending=True).values[first - 1 : last].double().log()
        slope, r_squared = _line(rank.log(), y)
        return PowerLaw(slope, r_squared, _line(rank, y)[1], first, last)


def _line(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> tuple[float, float]:
    """Return slope and R² of the least-squares line."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y / (x @ x)).item()
    return slope, (slope**2 * (x @ x) / (y @ y)).item()
