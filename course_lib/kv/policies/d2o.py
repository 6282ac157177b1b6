"""D2O, dynamic discriminative operations. Wan and others, 2024, https://arxiv.org/abs/2406.13035"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.merging import Leaving, cosines, merge
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class D2O(H2O):
    """Layers: share_l = L · softmax(−v)_l, v_l the variance of the tokens' H2O scores, scaled to 0 … 1 in each head.

    Tokens: who leaves by H2O's score is added to the kept key of highest cosine u, with weight e^u against that one's
    e, if u reaches a threshold τ ← smoothing · τ + (1 − smoothing) · mean(u); otherwise it is gone.

    Deviation: weights that sum to 1, where the authors' code shrinks norms; τ and the choice for each head, not their
    mean. As theirs, it merges rotated keys of different positions. `spared` layers keep everything. The first pass
    should hold the whole prompt.
    """

    sinks: int = 4
    spared: tuple[int, ...] = (0, 1, -1)
    smoothing: float = 0.5
    plans: ClassVar[bool] = True
    steady: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"got smoothing {self.smoothing!r}; expected the share of the old τ, 0.0 to below 1.0.")

    def plan(self, layers: list[Slots]) -> list[Slots]:
        variance = torch.stack([_variance(slots) for slots in layers])  # (layers, B)
        share = len(layers) * torch.softmax(-variance, dim=0)
        share[[layer for layer in self.spared if -len(layers) <= layer < len(layers)]] = float("inf")
        return [slots.noting(share=s[:, None].expand(slots.shape)) for slots, s in zip(layers, share, strict=True)]

    def sizes(self, slots: Slots, layer: int) -> Int[Tensor, "B H"]:
        share = slots.per_head["share"].double()
        whole = (super().sizes(slots, layer) * share).clamp(min=max(1, self.sinks + self.recent))
        return torch.minimum(whole, slots.n_seen[:, None].double()).long()

    def let_go(self, slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> Slots:
        leaving = Leaving.of(slots, score, sizes)
        kept = slots.keep_best(leaving.below(score), sizes)
        alike, target = cosines(leaving.keys, kept.keys).masked_fill(~kept.taken[:, :, None], -2).max(dim=3)
        n_left = leaving.there.sum(dim=2)
        mean = torch.where(leaving.there, alike, 0).sum(dim=2) / n_left.clamp(min=1)
        old = kept.per_head.get("threshold", torch.full_like(mean, torch.nan))  # until a head loses its first
        new = torch.where(old.isnan(), mean, self.smoothing * old + (1 - self.smoothing) * mean)
        threshold = torch.where(n_left > 0, new, old)
        merged = leaving.there & (alike >= threshold[..., None])
        kept = merge(kept, leaving, target, alike.exp() * merged, torch.full_like(kept.memory("mass"), torch.e))
        return kept.noting(threshold=threshold)


def _variance(slots: Slots) -> Float[Tensor, "B"]:
    """Of the scores of each head's tokens, scaled to 0 … 1; the mean over heads."""
    mass, taken = slots.memory("mass"), slots.taken
    low = mass.masked_fill(~taken, float("inf")).amin(dim=2, keepdim=True)
    high = mass.masked_fill(~taken, float("-inf")).amax(dim=2, keepdim=True)
    scaled = torch.where(taken, (mass - low) / (high - low).clamp(min=1e-9), 0)
    n = taken.sum(dim=2).clamp(min=1)
    return (scaled.square().sum(dim=2) / n - (scaled.sum(dim=2) / n).square()).mean(dim=1)
