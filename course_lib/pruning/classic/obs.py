"""Optimal Brain Surgeon, Hassibi, Stork, 1992, https://proceedings.neurips.cc/paper/1992/hash/303ed4c69846ab36c2904d3ba8573050-Abstract.html

Compute the inverse of the outer-product Hessian without a matrix inversion, by one rank-one update per gradient.

Dimension key: P samples, n gradients (samples times outputs), d weights.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def inverse_by_recursion(gradients: Float[Tensor, "n d"], n_patterns: int, alpha: float = 1e-8) -> Float[Tensor, "d d"]:
    """Compute (αI + 1/P Σ X Xᵀ)⁻¹ pattern by pattern (Hassibi and Stork 1992).

    H⁻¹_{k+1} = H⁻¹_k − H⁻¹_k X Xᵀ H⁻¹_k / (P + Xᵀ H⁻¹_k X),  H⁻¹_0 = I / α

    Each step is the Sherman-Morrison formula. It costs O(d²) per gradient, O(P d²) in total, and memory for d² numbers.
    """
    check_gradients(gradients, alpha)
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) / alpha
    for gradient in gradients:
        moved = inverse @ gradient
        inverse -= torch.outer(moved, moved) / (n_patterns + gradient @ moved)
    return inverse


def inverse_directly(gradients: Float[Tensor, "n d"], n_patterns: int, alpha: float = 1e-8) -> Float[Tensor, "d d"]:
    """Compute the same matrix by Cholesky: O(n d²) for the sum and O(d³) for the inverse, but faster in practice.

    It takes only two calls.
    """
    check_gradients(gradients, alpha)
    hessian = gradients.T @ gradients / n_patterns
    hessian.diagonal().add_(alpha)
    return inverse_of(hessian)


def inverse_of(hessian: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Return the inverse of a positive definite Hessian. Raise ValueError, with advice, for any other matrix."""
    if not hessian.isfinite().all():
        raise ValueError("the Hessian holds NaN or infinity: expected finite numbers; look at the weights and the data")
    factor, failed = torch.linalg.cholesky_ex(hessian)
    if failed:
        raise ValueError(
            f"the Hessian of {len(hessian)} weights is not positive definite (its order-{int(failed)} part is singular "
            "or bends down): expected a minimum in every direction; add alpha to its diagonal, or use a larger one"
        )
    return torch.cholesky_inverse(factor)


def embed(inverse: Float[Tensor, "k k"], keep: Bool[Tensor, "d"]) -> Float[Tensor, "d d"]:
    """Return the inverse over the kept weights, with zero rows and columns for the deleted ones."""
    whole = inverse.new_zeros(len(keep), len(keep))
    index = keep.nonzero().flatten()
    whole[index[:, None], index] = inverse
    return whole


def check_gradients(gradients: Float[Tensor, "n d"], alpha: float) -> None:
    if not gradients.isfinite().all():
        raise ValueError("the gradients hold NaN or infinity: expected finite numbers; look at the weights and data")
    if not alpha > 0:
        raise ValueError(
            f"alpha={alpha}: expected a positive number; with fewer patterns than weights the Hessian is singular "
            "without it. The paper takes 1e-8 to 1e-4"
        )
