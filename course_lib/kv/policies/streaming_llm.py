"""StreamingLLM. Xiao, Tian, Chen, Han, Lewis, 2023, https://arxiv.org/abs/2309.17453"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class StreamingLLM(EvictionPolicy):
    """Keep the first and the newest tokens (section 3.2): softmax rows sum to 1; surplus attention goes to sinks.

    The paper counts positions in slots: use it with `evicting(..., positions="rolling")`.
    """

    sinks: int = 4

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.position.float()
