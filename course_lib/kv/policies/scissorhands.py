"""Scissorhands. Liu and others, 2023, https://arxiv.org/abs/2305.17118"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.kv.history import PARTS, check_window, recent_sum
from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class Scissorhands(EvictionPolicy):
    """score_j = −#{queries i of the last `window` with A_ij < 1/i} (Algorithm 2): important tokens stay important.

    A head over its budget evicts the fraction `dropped` of the budget in one step, so that evictions are rare
    (Algorithm 1). The paper gives later layers a larger budget, because importance persists less there:
    `by_layer=rising(n_layers)`. It also combines the method with 4 bits: `evicting(..., vectors=Quantized(bits=4))`.

    Deviation: the printed pseudocode raises the counter of high scores, and then keeps the largest with the recent ones
    set to zero; here we count low scores and protect recent tokens. Weights are averaged over the query heads of a
    group.
    """

    recent: int = 10
    window: int = 400
    dropped: float = 0.5
    always_full: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self.window)

    def n_observed(self, n_queries: int) -> int:
        return self.window

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N K"]]:
        n_read = (seen.position + 1)[:, None, :, None]  # 1/t is what each of t tokens would get if all were equal
        visible = slots.position[:, :, None] < n_read
        low = visible & (seen.by_query / seen.n_groups * n_read < 1)
        return {"low": recent_sum(slots, "low", low.float(), seen.position, self.window)}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        age = slots.position / slots.n_seen[:, None, None]  # of equal counts, the oldest leaves
        return age.clamp(max=1) / 2 - slots.memory("low", PARTS).sum(dim=3)


def rising(n_layers: int, last: float = 1.5) -> tuple[float, ...]:
    """Return factors on the budget that rise linearly from 2 − last in the first layer to `last`; their mean is 1."""
    if n_layers == 1:
        return (1.0,)
    return tuple(2 - last + 2 * (last - 1) * layer / (n_layers - 1) for layer in range(n_layers))
