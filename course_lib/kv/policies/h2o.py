"""H2O, heavy-hitter oracle. Zhang and others, 2023, https://arxiv.org/abs/2306.14048"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.kv.policy import ALL, EvictionPolicy, Observed
from course_lib.kv.slots import Slots
from course_lib.settings import check_flag


@dataclass(frozen=True)
class H2O(EvictionPolicy):
    """score_j = Σ_{i ≥ j} A_ij over the queries so far (Algorithm 1): a few tokens receive most of the attention.

    The `recent` newest tokens are also kept, because few queries have attended to them yet. Scores are summed over the
    query heads of a group.

    Args:
        normalised: divide by the number of queries that can attend to the token. This gives the mean instead of the
            sum, which favours early tokens.
    """

    recent: int = 32
    normalised: bool = False
    sums_queries: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("normalised", self.normalised)

    def n_observed(self, n_queries: int) -> int:
        return ALL

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N"]]:
        return {"mass": slots.memory("mass") + seen.received}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        if not self.normalised:
            return slots.memory("mass")
        n_observers = slots.n_seen[:, None, None] - slots.position
        return slots.memory("mass") / torch.where(slots.occupied, n_observers, 1)
