"""The smallest set of entries that holds a fraction of their sum: FlexPrefill's cumulative-attention selection.

Lai and others, 2025, https://arxiv.org/abs/2502.20766, section 3.

Dimension key: N entries.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for


def smallest_set(
    mass: Float[Tensor, "*rows N"], share: float, at_least: int = 1, always: Bool[Tensor, "*rows N"] | None = None
) -> Bool[Tensor, "*rows N"]:
    """Return the smallest set of entries of each row whose sum is at least `share` of the row's sum.

    min |K| subject to Σ_{i in K} mass_i >= share · Σ_i mass_i: take the largest entries first, until the sum is enough.

    Args:
        mass: not negative. share: in [0, 1]; 1 keeps everything, 0 only what `at_least` and `always` require.
        at_least: the minimum number of entries per row; if it is larger than the row, all are kept.
        always: entries that are always kept; their mass counts.

    Raises:
        ValueError: a mass or a share is negative or NaN.
    """
    check_masses(share, mass)
    return smallest_set_of_checked(mass, share, at_least, always)


def check_masses(share: float, *masses: Tensor) -> None:
    """Raise ValueError for negative masses or NaN. The host waits for a GPU only once for all masses."""
    if not share >= 0 or not bool(torch.stack([(mass >= 0).all() for mass in masses]).all()):
        n_wrong = sum(int((~(mass >= 0)).sum()) for mass in masses)
        raise ValueError(
            f"got a fraction of {share} and masses of which {n_wrong} are negative or NaN; expected numbers of 0 or "
            "more."
        )


def smallest_set_of_checked(
    mass: Float[Tensor, "*rows N"], share: float, at_least: int = 1, always: Bool[Tensor, "*rows N"] | None = None
) -> Bool[Tensor, "*rows N"]:
    """Compute `smallest_set` for masses that are known to be neither negative nor NaN."""
    if share >= 1:  # rounding could end the sum before small entries, which other queries may need
        return torch.ones_like(mass, dtype=torch.bool)
    forced = torch.zeros_like(mass, dtype=torch.bool) if always is None else always
    shape = (mass.shape[:-1].numel(), mass.shape[-1])  # works for a single row as well
    rows = mass.reshape(shape), forced.expand_as(mass).reshape(shape)
    if kernel := kernel_for("cache.smallest_set", *rows):
        return kernel.launch(*rows, share, at_least).view(mass.shape)
    order = mass.masked_fill(forced, torch.inf).argsort(dim=-1, descending=True, stable=True)
    reached = mass.double().gather(-1, order).cumsum(dim=-1)
    before = torch.nn.functional.pad(reached, (1, 0))[..., :-1]
    needed = (before < share * reached[..., -1:]).sum(dim=-1, keepdim=True)
    count = needed.clamp(min=min(at_least, mass.shape[-1])).maximum(forced.sum(dim=-1, keepdim=True))
    rank = torch.arange(mass.shape[-1], device=mass.device)
    return torch.zeros_like(forced).scatter(-1, order, rank < count)
