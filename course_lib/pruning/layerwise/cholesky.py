"""The Cholesky factor of the inverse Hessian, with which optimal brain surgeon updates all rows of a layer in parallel.

Frantar, Ashkboos, Hoefler, Alistarh, GPTQ, 2022, https://arxiv.org/abs/2210.17323 (step 3, "Cholesky reformulation").

Dimension key: I inputs of a layer.
"""

from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Bool, Float
from torch import Tensor

GROWTH = 10.0  # factor on the damping from one attempt to the next
SMALLEST = 1e-8  # first damping after a failed attempt without any, relative to the mean diagonal
ATTEMPTS = 16
LEAF = 1024  # inputs: below this size a triangular solve on a GPU is as fast as two halves and products


@dataclass(frozen=True)
class Factor:
    """H⁻¹ = UᵀU with U upper triangular, where H = XᵀX + damping · mean(diag XᵀX) · I.

    Suppose that columns 0 … i − 1 are frozen and weight w_i changes to q_i. The optimal update of the weights right of
    column i is w_j −= (w_i − q_i) U_ij / U_ii, and the loss increases by (w_i − q_i)² / (2 U_ii²). This one factor
    therefore replaces the inverse Hessian of the remaining columns, which would differ for each i.
    """

    upper: Float[Tensor, "I I"]
    dead: Bool[Tensor, "I"]  # inputs that were zero for every token; H has an additional 1 on their diagonal
    damping: float  # as used; larger than requested if H was singular
    notes: tuple[str, ...] = ()  # messages about dead inputs and raised damping

    @property
    def diagonal(self) -> Float[Tensor, "I"]:
        """U_ii. 1 / U_ii² is the squared norm of input i minus its linear prediction from the inputs right of it."""
        return self.upper.diagonal()


def factorise(matrix: Float[Tensor, "I I"], damping: float) -> Factor:
    """Damp and factorise. If the matrix is numerically singular, multiply the damping by GROWTH until it is not.

    Each damping is tried in the matrix's own dtype, then in float64. A note reports raised damping.

    Args:
        matrix: the Gram matrix XᵀX.
        damping: relative to the mean of the matrix's diagonal.

    Raises:
        ValueError: for a negative damping, or a matrix with NaN or infinities.
    """
    _check(matrix, damping)
    diagonal = matrix.diagonal()
    dead = diagonal <= 0
    mean = float(diagonal.mean()) or 1.0
    notes = (f"{int(dead.sum())} of {len(dead)} inputs were always zero; their weights are zero now",)
    notes = notes if dead.any() else ()
    current = damping
    for _ in range(ATTEMPTS):
        for dtype in dict.fromkeys((matrix.dtype, torch.float64)):
            # H = XᵀX + current · mean(diag XᵀX) · I. Rows of dead inputs are zero; 1 on their diagonal makes H regular.
            hessian = matrix.to(dtype, copy=True)
            hessian.diagonal().add_(dead.to(dtype) + current * mean)
            upper = _inverse_factor(hessian)
            if upper is not None:
                if current > damping:
                    notes += (f"damping raised from {damping:g} to {current:g}: the Gram matrix is singular",)
                return Factor(upper.to(matrix.dtype), dead, current, notes)
        current = max(current * GROWTH, SMALLEST)
    raise ValueError(
        f"got a Gram matrix that no damping up to {current:g} makes positive definite; expected XᵀX of real inputs. "
        "Collect it again with Gram.add."
    )


def _inverse_factor(matrix: Float[Tensor, "I I"]) -> Float[Tensor, "I I"] | None:
    """Compute U with matrix⁻¹ = UᵀU, or None if the matrix is singular up to rounding error.

    Cholesky with the inputs in reversed order gives matrix = R Rᵀ with R upper triangular, so U = R⁻¹. This takes a
    third of the operations of inverting the matrix and factorising the inverse, and loses less precision.
    """
    # J M J = L Lᵀ with J the reversal, so M = (J L J)(J L J)ᵀ and R = J L J.
    lower, error_code = torch.linalg.cholesky_ex(matrix.flip(0, 1))
    root = lower.flip(0, 1)
    # R_ii² / M_ii is the fraction of input i's squared norm that the inputs right of it do not predict. It has to
    # exceed the rounding error of the sums, I · ε.
    fraction = root.diagonal().square() / matrix.diagonal()
    if error_code or not bool((fraction > len(matrix) * torch.finfo(matrix.dtype).eps).all()):
        return None
    if root.is_cuda:
        return _inverse_by_halves(root, torch.zeros_like(root, memory_format=torch.contiguous_format))
    return _inverse(root)


def _inverse(root: Float[Tensor, "I I"]) -> Float[Tensor, "I I"]:
    """Solve R U = I for an upper triangular R."""
    identity = torch.eye(len(root), dtype=root.dtype, device=root.device)
    return torch.linalg.solve_triangular(root, identity, upper=True)


def _inverse_by_halves(root: Float[Tensor, "I I"], out: Float[Tensor, "I I"]) -> Float[Tensor, "I I"]:
    """Invert R on a GPU by halves, into `out`, which has to be zero: [A B; 0 C]⁻¹ = [A⁻¹ −A⁻¹BC⁻¹; 0 C⁻¹].

    Most of the work is then matrix products. On an H200, 14,336 inputs take 46 ms; a triangular solve takes 78 ms.
    """
    if len(root) <= LEAF:
        return out.copy_(_inverse(root))
    half = len(root) // 2
    top, bottom = slice(half), slice(half, None)
    for part in (top, bottom):
        _inverse_by_halves(root[part, part], out[part, part])
    # −A⁻¹ B C⁻¹
    torch.mm(out[top, top] @ root[top, bottom], out[bottom, bottom], out=out[top, bottom]).neg_()
    return out


def _check(matrix: Tensor, damping: float) -> None:
    if isinstance(damping, bool) or not isinstance(damping, Real) or not 0 <= damping < float("inf"):
        raise ValueError(f"got damping {damping!r}; expected at least 0, such as 0.01 of the mean diagonal.")
    if not bool(matrix.isfinite().all()):
        raise ValueError(
            f"got a Gram matrix with {int((~matrix.isfinite()).sum())} NaN or infinite entries; expected finite sums. "
            "Look for NaN in the calibration inputs, or for activations that overflow."
        )
