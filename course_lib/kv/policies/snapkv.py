"""SnapKV. Li and others, 2024, https://arxiv.org/abs/2404.14469"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool1d

from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class SnapKV(EvictionPolicy):
    """score_j = mean over the last `recent` queries of A_ij, averaged over `kernel` neighbours (Listing 1).

    The end of the prompt shows which part of the prompt the answer will need. Only passes of several tokens, i.e. a
    prompt or a part of it, are compressed. Tokens that are generated one by one are all kept, above the budget.

    Args:
        recent: the observation window, which is kept.
        kernel: number of neighbours over which scores are averaged, so that whole phrases are kept; an odd number.
    """

    recent: int = 64
    kernel: int = 5
    always_full: ClassVar[bool] = False
    sums_queries: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.kernel) is not int or self.kernel < 1 or self.kernel % 2 == 0 or not self.recent:
            raise ValueError(
                f"got kernel {self.kernel!r} and recent {self.recent!r}; expected an odd number of neighbours and an "
                "observation window of 1 or more."
            )

    def n_observed(self, n_queries: int) -> int:
        return self.recent if n_queries > 1 else 0

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N"]]:
        old = torch.zeros_like(slots.memory("window")) if seen.is_first else slots.memory("window")
        return {"window": old + seen.mean_received}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        before = slots.position <= slots.n_seen[:, None, None] - 1 - self.recent
        in_order = slots.position.argsort(dim=2)
        received = (slots.memory("window") * before).gather(2, in_order)
        pooled = avg_pool1d(received.flatten(0, 1), self.kernel, stride=1, padding=self.kernel // 2).view_as(received)
        return torch.empty_like(pooled).scatter_(2, in_order, pooled)

    def shrink(self, slots: Slots, layer: int) -> Slots:
        return super().shrink(slots, layer) if slots.n_new > 1 else slots
