"""Exact least squares on a fixed mask, as in ALPS. Meng, Behdin, Wang, Mazumder, 2024. https://arxiv.org/abs/2406.07831

Dimension key: O outputs of a layer, I its inputs, R rows solved together, K columns kept in the fullest of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from course_lib.pruning.base import LayerPruner, check_class
from course_lib.pruning.layerwise.gram import Gram, check_layer
from course_lib.pruning.methods.wanda import Wanda
from course_lib.settings import check_number

STEPS = 200  # maximum of conjugate gradients; a layer of a language model takes 50 to 100
CHUNK = 2**24  # entries of the systems solved together if these steps are too few: 64 MiB in float32


@dataclass
class Refit(LayerPruner):
    """The weights that minimise the change of the layer's output, for a mask that another method chose.

    For each row with kept columns S and dropped columns D: w'_S = w_S + H_SS⁻¹ H_SD w_D, the normal equations. This is
    the optimum for that mask, so its error is a lower bound for SparseGPT, which updates only columns to the right.

    Deviation: ALPS takes ten steps of conjugate gradients; here they continue until convergence, and rows that do not
    converge are solved with their own Cholesky factor.

    Attributes:
        chooser: the class of pruner that chooses the mask, such as Wanda, SparseGPT or SparseSwaps.
        damping: as in SparseGPT, so that both minimise the same objective.
    """

    chooser: type[LayerPruner] = Wanda
    damping: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_class("chooser", self.chooser)
        check_number("damping", self.damping)

    def prepare(self, inputs: Gram) -> None:
        inputs.factor(self.damping)
        self.chooser(self.pattern).prepare(inputs)

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self.chooser(self.pattern)._score(weight, inputs)

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return self.chooser(self.pattern)._keep(weight, inputs)

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return _refit(weight, self._keep(weight, inputs), inputs, self.damping)


def refit(
    weight: Float[Tensor, "O I"], keep: Bool[Tensor, "O I"], inputs: Gram, damping: float = 0.01
) -> Float[Tensor, "O I"]:
    """Return the optimal weights for a mask. Weights that are already zero stay zero."""
    check_layer(weight, inputs, "matrix")
    return _refit(weight, keep, inputs, damping)


def _refit(
    weight: Float[Tensor, "O I"], keep: Bool[Tensor, "O I"], inputs: Gram, damping: float
) -> Float[Tensor, "O I"]:
    factor = inputs.factor(damping)
    dtype = torch.promote_types(weight.dtype, torch.float32)
    # H = XᵀX + damping · mean(diag XᵀX) · 1, and 1 on the diagonal of an input that is always zero
    dense, matrix = weight.detach().to(dtype), inputs.matrix.to(dtype, copy=True)
    matrix.diagonal().add_(factor.dead.to(dtype) + factor.damping * float(matrix.diagonal().mean()))
    keep = keep & (dense != 0) & ~factor.dead
    fitted, unfinished = _by_gradients(dense, keep, matrix)
    if len(unfinished):
        fitted[unfinished] = _by_factors(dense[unfinished], keep[unfinished], matrix)
    return fitted.masked_fill_(~keep, 0).to(weight.dtype)


def _by_gradients(
    dense: Float[Tensor, "O I"], keep: Bool[Tensor, "O I"], matrix: Float[Tensor, "I I"]
) -> tuple[Float[Tensor, "O I"], Int64[Tensor, "R"]]:
    """Run conjugate gradients for all rows, with the diagonal as preconditioner. Also return the rows left to solve.

    A step is one product with H. Cholesky factors cost five times as much, because each row needs its own.
    Below, P = 1/diag(H) on the kept columns S of a row and 0 elsewhere, and all products with H are restricted to S.
    """
    inside, tiny = keep.to(dense.dtype), torch.finfo(dense.dtype).tiny
    tolerance = torch.finfo(dense.dtype).eps ** (4 / 3)  # for the squared residual; in float32 the norm falls to 2e-5
    preconditioner = inside / matrix.diagonal()
    fitted = dense * inside
    # r = (w − x) H,  d = P r,  ρ = ⟨r, P r⟩: each row has its own x, r, d and ρ
    residual = ((dense - fitted) @ matrix).mul_(inside)
    direction = residual * preconditioner
    squared = squared_at_first = (residual * direction).sum(1, keepdim=True)  # (O, 1)
    for _ in range(STEPS):
        if bool((squared <= tolerance * squared_at_first).all()):
            break
        # α = ρ / ⟨d, d H⟩,  x += α d,  r −= α d H
        product = (direction @ matrix).mul_(inside)
        step = squared / (direction * product).sum(1, keepdim=True).clamp(min=tiny)
        fitted.addcmul_(step, direction)
        residual.addcmul_(step, product, value=-1)
        # ρ' = ⟨r, P r⟩,  d = P r + ρ'/ρ · d
        scaled = torch.mul(residual, preconditioner, out=product)
        before, squared = squared, (residual * scaled).sum(1, keepdim=True)
        direction = scaled.addcmul_(squared / before.clamp(min=tiny), direction)
    return fitted, (squared > tolerance * squared_at_first)[:, 0].nonzero()[:, 0]


def _by_factors(
    dense: Float[Tensor, "O I"], keep: Bool[Tensor, "O I"], matrix: Float[Tensor, "I I"]
) -> Float[Tensor, "O I"]:
    """Solve the normal equations of each row by Cholesky; rows with similar numbers of kept columns form a batch."""
    fitted = dense * keep
    # w'_S = w_S + x with H_SS x = H_SD w_D
    right = (dense - fitted) @ matrix
    for rows, columns, real in _systems(keep):
        correction = _solve(matrix, columns, real, right[rows[:, None], columns])  # (R, K)
        fitted[rows[:, None], columns] += correction  # padded entries add zero
    return fitted


def _systems(
    keep: Bool[Tensor, "O I"],
) -> Iterator[tuple[Int64[Tensor, "R"], Int64[Tensor, "R K"], Bool[Tensor, "R K"]]]:
    """Yield batches of rows with similar numbers of kept columns: rows, kept columns, and False for padding."""
    counts = keep.sum(1)
    order = counts.argsort(descending=True, stable=True)
    start = 0
    while start < len(order) and counts[order[start]]:
        widest = int(counts[order[start]])
        rows = order[start : start + max(1, CHUNK // widest**2)]
        rows = rows[counts[rows] > 0]
        columns = keep[rows].to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :widest]
        yield rows, columns, torch.arange(widest, device=keep.device) < counts[rows][:, None]
        start += len(rows)


def _solve(
    matrix: Float[Tensor, "I I"], columns: Int64[Tensor, "R K"], real: Bool[Tensor, "R K"], right: Float[Tensor, "R K"]
) -> Float[Tensor, "R K"]:
    """Solve H_SS x = right for every row; padded entries are equations x = 0. Falls back to float64."""
    system = matrix[columns[:, :, None], columns[:, None, :]]  # (R, K, K): H_SS of each row
    system *= real[:, :, None] & real[:, None, :]
    system.diagonal(dim1=1, dim2=2).add_(~real)
    right = (right * real)[:, :, None]
    lower, failed = torch.linalg.cholesky_ex(system)
    if failed.any():
        lower, right = torch.linalg.cholesky(system.double()), right.double()
    return torch.cholesky_solve(right, lower)[:, :, 0].to(matrix.dtype)
