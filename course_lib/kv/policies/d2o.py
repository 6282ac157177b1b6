"""D2O, dynamic discriminative operations. Wan and others, 2024, https://arxiv.org/abs/2406.13035"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention.checks import check_finite
from course_lib.kv.merging import TIE, Evicted, cosines, merge_, most_alike
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.slots import Slots
from course_lib.settings import check_below_one, check_layers


@dataclass(frozen=True)
class D2O(H2O):
    """Layers: share_l = L · softmax(−v)_l, v_l the variance of the tokens' H2O scores, scaled to 0 … 1 per head.

    Tokens: an evicted one is merged into the kept key of highest cosine u, weights e^u and e, if u ≥ τ, a running mean.

    Deviation: weights sum to 1, but the authors' code shrinks norms; τ and the choice are per head, not averaged. Like
    their code, we merge rotated keys of other positions. Layers in `spared` keep all; the first pass is the prompt.
    """

    sinks: int = 4
    spared: tuple[int, ...] = (0, 1, -1)
    smoothing: float = 0.5
    allocates_layers: ClassVar[bool] = True
    always_full: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers("spared", self.spared), check_below_one("smoothing", self.smoothing)

    def allocate_(self, layers: list[Slots]) -> list[Slots]:
        shares = len(layers) * torch.softmax(-torch.stack([_variance(slots) for slots in layers]), dim=0)  # (L, B)
        check_finite("attention scores", shares)
        shares[[layer for layer in self.spared if -len(layers) <= layer < len(layers)]] = float("inf")
        for slots, share in zip(layers, shares, strict=True):
            slots.per_head["share"] = share[:, None].expand(slots.shape)  # (B, H)
        return layers

    def sizes(self, slots: Slots, layer: int) -> Int[Tensor, "B H"]:
        sizes = super().sizes(slots, layer) * slots.per_head["share"].double()
        return sizes.clamp(min=max(1, self.sinks + self.recent)).minimum(slots.n_seen[:, None].double()).long()

    def evict_(self, slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> Slots:
        evicted = Evicted.of(slots, score, sizes)
        slots.keep_best_(evicted.below(score), sizes)
        alike = cosines(evicted.keys, slots.keys).masked_fill(~slots.occupied[:, :, None], -2)  # (B, H, E, N)
        nearest, target = most_alike(alike, slots)  # u and the slot it belongs to, (B, H, E)
        n_evicted = evicted.valid.sum(dim=2)
        mean = torch.where(evicted.valid, nearest, 0).sum(dim=2) / n_evicted.clamp(min=1)
        old = slots.per_head.get("threshold", torch.full_like(mean, torch.nan))  # until a head loses its first
        new = torch.where(old.isnan(), mean, self.smoothing * old + (1 - self.smoothing) * mean)
        slots.per_head["threshold"] = threshold = torch.where(n_evicted > 0, new, old)
        weight = nearest.exp() * (evicted.valid & (nearest >= threshold[..., None] - TIE))
        return merge_(slots, evicted, target, weight, own=torch.full_like(slots.memory("mass"), torch.e))


def _variance(slots: Slots) -> Float[Tensor, "B"]:
    """Compute E(s²) − E(s)² of the scores of each head's tokens, scaled to 0 … 1, and average over heads."""
    mass, occupied = slots.memory("mass"), slots.occupied
    low = mass.masked_fill(~occupied, float("inf")).amin(dim=2, keepdim=True)
    high = mass.masked_fill(~occupied, float("-inf")).amax(dim=2, keepdim=True)
    scaled = torch.where(occupied, (mass - low) / (high - low).clamp(min=1e-9), 0)
    n = occupied.sum(dim=2).clamp(min=1)
    return (scaled.square().sum(dim=2) / n - (scaled.sum(dim=2) / n).square()).mean(dim=1)
