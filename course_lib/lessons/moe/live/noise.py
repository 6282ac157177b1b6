"""Shazeer's noise on real logits: who is among the best, draw by draw.

Dimension key: T tokens, E experts, R draws.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from course_lib.moe.choice import among, highest


class Draws(NamedTuple):
    """The second set of logits, of which softplus is the deviation; noisy logits of the first draw; loads of all."""

    noise: Float[Tensor, "T E"]
    noisy: Float[Tensor, "T E"]
    counts: Float[Tensor, "R E"]


def draws(logits: Float[Tensor, "T E"], n_draws: int, k: int, seed: int = 0) -> Draws:
    """Noise of deviation softplus(0) = log 2 everywhere, as at the start of training, when its weights are zero."""
    generator, noise = torch.Generator().manual_seed(seed), torch.zeros_like(logits)
    every, counts = [], []
    for _ in range(n_draws):
        every.append(logits + torch.randn(logits.shape, generator=generator) * softplus(noise))
        counts.append(among(highest(every[-1], k), logits.shape[1]).sum(dim=0).float())
    return Draws(noise, every[0], torch.stack(counts))
