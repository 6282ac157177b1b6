"""Local window: the newest tokens. Beltagy and others, Longformer, 2020, https://arxiv.org/abs/2004.05150"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class Window(EvictionPolicy):
    """score_j = j: the oldest token is evicted. Language models break when this is the first token of the text."""

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.position.float()
