"""A cache without eviction, as the baseline."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class Full(EvictionPolicy):
    """Keep every token."""

    budget: int | float = 1.0

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.position.float()
