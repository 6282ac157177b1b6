"""TOVA, token omission via attention. Oren, Hassid, Yarden, Adi, Schwartz, 2024, https://arxiv.org/abs/2401.06104"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class TOVA(EvictionPolicy):
    """score_j = attention of the newest query to token j, averaged over all heads (section 3.2).

    All heads keep the same tokens.
    """

    recent: int = 1

    def n_observed(self, n_queries: int) -> int:
        return 1

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N"]]:
        return {"newest": seen.newest_of_all_heads[:, None].expand_as(slots.position)}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.memory("newest")
