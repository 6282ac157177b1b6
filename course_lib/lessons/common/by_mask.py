"""An eviction policy from a function that chooses the slots to keep: a student's rule in a real cache.

Dimension key: B sequences, H key-value heads, N slots.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class ByMask(EvictionPolicy):
    """score_j = 1 if `stays` is True, else 0. The function is called when there are more slots than the budget.

    Args:
        stays: (slots) -> mask of the kept slots (B, H, N), with as many per head as the budget.
    """

    stays: Callable[[Slots], Bool[Tensor, "B H N"]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.stays):
            raise ValueError(f"got stays {self.stays!r}; expected a function of the slots that gives a mask of them.")

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return self.stays(slots).float()
