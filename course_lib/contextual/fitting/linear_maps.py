"""Linear maps that selectors fit to the inputs of a block: ridge regression, and low-rank approximation of a matrix.

Dimension key: L blocks, D width, F neurons, T tokens, R rank.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.sizes import Sizes
from course_lib.pruning.layerwise.gram import Gram


class Regression(NamedTuple):
    """y ≈ mean + (e − centre) · slope, one linear map per block."""

    centre: Float[Tensor, "D"]
    mean: Float[Tensor, "L F"]
    slope: Float[Tensor, "L D F"]


class RegressionSums:
    """The sums Σ e and Σ eeᵀ, and for each block Σ y and Σ eyᵀ; the tokens themselves are not stored."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        n_blocks, width, n_neurons = sizes
        self.n_tokens = 0
        self.e, self.ee = torch.zeros(width, device=device), torch.zeros(width, width, device=device)
        self.y = torch.zeros(n_blocks, n_neurons, device=device)
        self.ey = torch.zeros(n_blocks, width, n_neurons, device=device)

    def add(self, block: int, e: Float[Tensor, "T D"], y: Float[Tensor, "T F"]) -> None:
        """Add the tokens of a pass at one block; e is the same in all blocks and is added only at the first one."""
        if block == 0:
            self.n_tokens += len(e)
            self.e += e.sum(0)
            self.ee.addmm_(e.T, e)
        self.y[block] += y.sum(0)
        self.ey[block].addmm_(e.T, y)

    def solved(self, damping: float) -> Regression:
        """Solve the ridge regression with the penalty `damping` times the mean variance of e.

        Raises:
            ValueError: e is the same for all tokens, so that it predicts nothing.
        """
        # slope = (cov(e) + λ I)⁻¹ cov(e, y)
        centre, mean = self.e / self.n_tokens, self.y / self.n_tokens
        covariance = (self.ee / self.n_tokens - torch.outer(centre, centre)).double()
        variance = covariance.diagonal().mean()
        if not variance > 1e-9 * centre.double().square().mean():  # what float32 sums leave of equal embeddings
            raise ValueError(f"got {self.n_tokens} calibration tokens that are all alike; expected running text.")
        covariance.diagonal().add_(damping * variance)
        factor = torch.linalg.cholesky(covariance)
        slopes = torch.empty_like(self.ey)
        for block, sums in enumerate(self.ey):
            with_y = (sums / self.n_tokens - torch.outer(centre, mean[block])).double()
            slopes[block] = torch.cholesky_solve(with_y, factor)
        return Regression(centre, mean, slopes)


class Factors(NamedTuple):
    """W ≈ outer · inner."""

    outer: Float[Tensor, "F R"]
    inner: Float[Tensor, "R D"]


def cut(weights: list[Float[Tensor, "F D"]], inputs: Gram, rank: int) -> tuple[Factors, ...]:
    """Return the matrices of rank R whose outputs on these inputs are closest to the outputs of the weights.

    ‖(W − Ŵ) X‖_F is smallest for Ŵ = (W S)_R S⁻¹, where SSᵀ = XXᵀ and (·)_R keeps the R largest singular values.
    """
    inputs.check_tokens()
    covariance = inputs.matrix.double() / inputs.n_tokens
    covariance.diagonal().add_(1e-6 * covariance.diagonal().mean())  # fewer tokens than inputs leave it singular
    whitener = torch.linalg.cholesky(covariance)
    return tuple(_factors(weight, whitener, rank) for weight in weights)


def _factors(weight: Float[Tensor, "F D"], whitener: Float[Tensor, "D D"], rank: int) -> Factors:
    # W S = U Σ Vᵀ, Ŵ = (W S V_R) (V_Rᵀ S⁻¹); V are the eigenvectors of (W S)ᵀ(W S), those of large Σ last
    whitened = weight.double() @ whitener
    basis = torch.linalg.eigh(whitened.T @ whitened).eigenvectors[:, -rank:]
    inner = torch.linalg.solve_triangular(whitener, basis.T, upper=False, left=False)
    return Factors((whitened @ basis).float(), inner.float())
