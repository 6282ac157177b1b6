"""Problems whose loss has a known shape, for which an estimator's error can be enumerated.

Dimension key: n problems, E experts, V outputs of an expert, H hidden units, C classes.
"""

import torch
from torch import Tensor

from course_lib.moe.estimators.estimator import Problem

N_EXPERTS, N_OUTPUTS, N_HIDDEN, N_CLASSES = 5, 4, 8, 3


def polynomial(n_problems: int, degree: int, generator: torch.Generator) -> Problem:
    """L(y) = Σ_j Σ_p c_jp (a_j·y)^p for p up to `degree`, over 3 random directions a_j."""
    if degree < 1:
        raise ValueError(f"degree={degree}: expected at least 1, a linear loss")
    logits, outputs = _router(n_problems, generator)
    directions = _normal(generator, n_problems, N_OUTPUTS, 3) / N_OUTPUTS**0.5
    weights = _normal(generator, n_problems, 3, degree)

    def loss(y: Tensor) -> Tensor:
        along = torch.einsum("n...v,nvj->n...j", y, directions)
        powers = torch.stack([along**power for power in range(1, degree + 1)], dim=-1)
        return torch.einsum("n...jp,njp->n...", powers, weights)

    return Problem(logits, outputs, loss)


def network(n_problems: int, generator: torch.Generator) -> Problem:
    """Cross-entropy of a tanh layer and a linear layer after the router's output, which is not a polynomial."""
    logits, outputs = _router(n_problems, generator)
    lower = _normal(generator, n_problems, N_OUTPUTS, N_HIDDEN)
    upper = _normal(generator, n_problems, N_HIDDEN, N_CLASSES)

    def loss(y: Tensor) -> Tensor:
        units = torch.einsum("n...v,nvh->n...h", y, lower).tanh()
        scores = torch.einsum("n...h,nhc->n...c", units, upper)
        return -scores.log_softmax(dim=-1)[..., 0]

    return Problem(logits, outputs, loss)


def _router(n_problems: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    if n_problems < 1:
        raise ValueError(f"n_problems={n_problems}: expected at least 1")
    return _normal(generator, n_problems, N_EXPERTS), _normal(generator, n_problems, N_EXPERTS, N_OUTPUTS)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
