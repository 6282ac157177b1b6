"""EMS, evict then merge. Li and others, 2024, https://arxiv.org/abs/2412.08521"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.history import PARTS, check_window, recent_sum
from course_lib.kv.merging import Evicted, cosines, merge_, most_alike
from course_lib.kv.policy import ALL, EvictionPolicy, Observed
from course_lib.kv.slots import Slots
from course_lib.settings import is_real


@dataclass(frozen=True)
class EMS(EvictionPolicy):
    """score_j = g_j / mean(g) + l_j / mean(l): attention from all queries so far, and from the last `window` ones.

    An evicted token is merged into the kept slot with the highest cos(keys) · cos(values), if this is above `threshold`
    and both cosines are positive; otherwise it is discarded (merged into the zero class). Only the evicted tokens with
    the highest scores, as many as `merged` times the budget, can be merged.

    Deviation: we wrote this from the abstract and the paper's reviews. Details that they do not give are our choice,
    such as the division by the mean.
    """

    recent: int = 32
    window: int = 64
    threshold: float = 0.6
    merged: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self.window)
        are_numbers = is_real(self.threshold) and is_real(self.merged)
        if not are_numbers or not (0 <= self.threshold < 1 and self.merged >= 0):
            raise ValueError(
                f"got threshold {self.threshold!r} and merged {self.merged!r}; expected a product of cosines from 0.0 "
                "to below 1.0, and a factor on the budget of 0.0 or more."
            )

    def n_observed(self, n_queries: int) -> int:
        return ALL

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N ..."]]:
        received = seen.by_query
        local = recent_sum(slots, "local", received, seen.position, self.window)
        return {"global": slots.memory("global") + received.sum(dim=2), "local": local}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        received = slots.memory("global"), slots.memory("local", PARTS).sum(dim=3)
        sums = [attention * slots.occupied for attention in received]  # g and l
        return sum(part / part.sum(dim=2, keepdim=True).clamp(min=1e-9) for part in sums)

    def evict_(self, slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> Slots:
        evicted = Evicted.of(slots, score, sizes)
        count = slots.memory("absorbed") + 1  # of how many tokens a slot is the mean
        weight = count.gather(2, evicted.index)
        slots.remember_({"absorbed": count - 1}).keep_best_(evicted.below(score), sizes)
        keys, values = cosines(evicted.keys, slots.keys), cosines(evicted.values, slots.values)  # (B, H, E, N)
        similarity = torch.where((keys > 0) & (values > 0) & slots.occupied[:, :, None], keys * values, 0)
        best, target = most_alike(similarity, slots)  # (B, H, E)
        n_evicted = evicted.valid.sum(dim=2, keepdim=True)
        n_better = n_evicted - 1 - torch.arange(best.shape[2], device=best.device)  # the worst come first
        weight = weight * (evicted.valid & (best > self.threshold) & (n_better < self.merged * sizes[..., None]))
        own = slots.memory("absorbed") + 1
        merge_(slots, evicted, target, weight, own)
        return slots.remember_({"absorbed": own.scatter_add(2, target, weight) - 1})
