"""One output of a linear layer as a separate network, without approximation: y = w · x, E = 1/(2N) Σ (y − ŷ)²,
H = XᵀX / N.

Dimension key: O outputs, I inputs of the layer, N tokens.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.classic.network import DTYPE
from course_lib.pruning.classic.obs import inverse_of
from course_lib.pruning.classic.surfaces import Diagonal, Inverse, Surface


def row_surfaces(gram: Float[Tensor, "I I"], n_tokens: int, damping: float = 0.01) -> dict[str, Surface]:
    """Return the error surface of a row for each method. `damping`: fraction of the mean diagonal, as in SparseGPT."""
    if damping < 0:
        raise ValueError(f"damping={damping}: expected a fraction of the mean diagonal, at least 0")
    hessian = gram.to(DTYPE) / n_tokens
    damped = hessian + damping * hessian.diagonal().mean() * torch.eye(len(hessian), dtype=DTYPE)
    return {
        "magnitude": Diagonal(torch.ones(len(hessian), dtype=DTYPE)),
        "OBD": Diagonal(hessian.diagonal()),
        "OBS": Inverse(inverse_of(damped)),
    }


def prune_row(weight: Float[Tensor, "I"], surface: Surface, n_leaving: int) -> Float[Tensor, "I"]:
    """Delete the cheapest weight n times. The error stays quadratic, so the surface need not be computed again."""
    if not 0 <= n_leaving < len(weight):
        raise ValueError(f"n_leaving={n_leaving}: expected at least 0 and fewer than the row's {len(weight)} weights")
    weight, keep = weight.to(DTYPE), torch.ones(len(weight), dtype=torch.bool)
    for _ in range(n_leaving):
        q = int(surface.saliency(weight).masked_fill(~keep, torch.inf).argmin())
        weight, surface, keep[q] = weight + surface.change(weight, q), surface.without(q), False
    return weight * keep


def output_error(gram: Float[Tensor, "I I"], dense: Float[Tensor, "I"], pruned: Float[Tensor, "I"]) -> float:
    """Return the squared error of the row's output on the calibration tokens, as a fraction of the squared output."""
    gram, dense = gram.to(DTYPE), dense.to(DTYPE)
    moved = pruned.to(DTYPE) - dense
    return ((moved @ gram @ moved) / (dense @ gram @ dense)).item()
