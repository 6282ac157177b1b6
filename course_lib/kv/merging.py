"""What leaves a head is not lost when it is added to a slot that stays.

Dimension key: B sequences, H key-value heads, N slots that stay, E slots that leave, D size of a head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.kv.slots import Slots, pick


@dataclass(frozen=True)
class Leaving:
    """Copies of the keys and values that leave, the worst first; not `there` where a head loses fewer than others."""

    keys: Float[Tensor, "B H E D"]
    values: Float[Tensor, "B H E D"]
    there: Bool[Tensor, "B H E"]
    index: Int[Tensor, "B H E"]  # where they were

    @staticmethod
    def of(slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> "Leaving":
        """Those that `slots.keep_best(score, sizes)` lets go: to be called first, and `below` next."""
        index, there = slots.lowest(score, sizes)
        return Leaving(pick(slots.keys, index), pick(slots.values, index), there, index)

    def below(self, score: Float[Tensor, "B H N"]) -> Float[Tensor, "B H N"]:
        """The score with these below all others: of equal ones `keep_best` might choose others, lost or doubled."""
        leave = torch.zeros_like(score, dtype=torch.bool).scatter(2, self.index, self.there)
        return score.masked_fill(leave, -torch.inf)


def cosines(left: Float[Tensor, "B H E D"], right: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H E N"]:
    """Of all pairs, in float32."""
    return normalize(left.float(), dim=3) @ normalize(right.float(), dim=3).transpose(2, 3)


def merge(
    slots: Slots,
    leaving: Leaving,
    target: Int[Tensor, "B H E"],
    weight: Float[Tensor, "B H E"],
    own: Float[Tensor, "B H N"],
) -> Slots:
    """x_c ← (own_c x_c + Σ_{e → c} w_e x_e) / (own_c + Σ_{e → c} w_e), for keys and values alike.

    The weights of what becomes one vector sum to 1, so that equal vectors stay what they are, however many they were.
    """
    if not bool((weight > 0).any()):
        return slots
    total = own.scatter_add(2, target, weight)
    found = {}
    for name, stay, leave in (("keys", slots.keys, leaving.keys), ("values", slots.values, leaving.values)):
        spread = target[..., None].expand_as(leave)
        summed = (stay.float() * own[..., None]).scatter_add(2, spread, leave.float() * weight[..., None])
        merged = torch.where((total > own)[..., None], summed / total[..., None], stay.float())
        found[name] = pick(merged, target).to(stay.dtype)
    return slots.written(target, found["keys"], found["values"])
