"""Merging: instead of discarding an evicted slot, add it to a slot that is kept.

Dimension key: B sequences, H key-value heads, N slots that are kept, E slots that are evicted, D size of a head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE, pick

TIE = 1e-4  # similarities with a smaller relative difference count as equal; rounding errors in float32 are far smaller


@dataclass(frozen=True)
class Evicted:
    """Copies of evicted keys and values, lowest score first; not `valid` where a head evicts fewer than others."""

    keys: Float[Tensor, "B H E D"]
    values: Float[Tensor, "B H E D"]
    valid: Bool[Tensor, "B H E"]
    index: Int[Tensor, "B H E"]  # where they were

    @staticmethod
    def of(slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> "Evicted":
        """Return what `slots.keep_best_(score, sizes)` will evict. Call this first, then pass it `below(score)`."""
        score = score.masked_fill(~slots.occupied, float("inf"))
        n_evicted = (slots.occupied.sum(dim=2) - sizes).clamp(min=0)  # (B, H)
        index = score.topk(int(n_evicted.max()), dim=2, largest=False).indices  # (B, H, E)
        valid = torch.arange(index.shape[2], device=index.device) < n_evicted[..., None]
        return Evicted(pick(slots.keys, index), pick(slots.values, index), valid, index)

    def below(self, score: Float[Tensor, "B H N"]) -> Float[Tensor, "B H N"]:
        """Return the score with −∞ for these slots. Otherwise `keep_best_` could choose others of equal score."""
        leaves = torch.zeros_like(score, dtype=torch.bool).scatter(2, self.index, self.valid)
        return score.masked_fill(leaves, -torch.inf)


def cosines(left: Float[Tensor, "B H E D"], right: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H E N"]:
    """Compute the cosines of all pairs, in float32."""
    return normalize(left.float(), dim=3) @ normalize(right.float(), dim=3).transpose(2, 3)


def most_alike(
    similarity: Float[Tensor, "B H E N"], slots: Slots
) -> tuple[Float[Tensor, "B H E"], Int[Tensor, "B H E"]]:
    """Return for each evicted slot the highest similarity and the kept slot that has it; the oldest token wins a tie.

    For example, in repeated text a token can be equally similar to its left and its right neighbour. Without the rule
    for ties, rounding and the order of the slots, which depends on padding, would decide between the two.
    """
    best = similarity.amax(dim=3)
    ties = similarity >= (best - TIE * best.abs())[..., None]  # (B, H, E, N)
    return best, torch.where(ties, slots.position[:, :, None], FREE).argmin(dim=3)


def merge_(
    slots: Slots,
    evicted: Evicted,
    target: Int[Tensor, "B H E"],
    weight: Float[Tensor, "B H E"],
    own: Float[Tensor, "B H N"],
) -> Slots:
    """x_c ← (own_c x_c + Σ_{e → c} w_e x_e) / (own_c + Σ_{e → c} w_e), for keys and values.

    The weights in each mean sum to 1, so a merge of equal vectors does not change them.
    """
    if not bool((weight > 0).any()):
        return slots
    total = own.scatter_add(2, target, weight)  # own_c + Σ w_e, (B, H, N)
    keys = _weighted_means(slots.keys, evicted.keys, target, weight, own, total)
    values = _weighted_means(slots.values, evicted.values, target, weight, own, total)
    return slots.overwrite_(target, pick(keys, target), pick(values, target))


def _weighted_means(
    stay: Float[Tensor, "B H N D"],
    leave: Float[Tensor, "B H E D"],
    target: Int[Tensor, "B H E"],
    weight: Float[Tensor, "B H E"],
    own: Float[Tensor, "B H N"],
    total: Float[Tensor, "B H N"],
) -> Float[Tensor, "B H N D"]:
    """Return the weighted mean of each kept vector and those merged into it; if there are none, it does not change."""
    index = target[..., None].expand_as(leave)  # (B, H, E, D)
    # own_c x_c + Σ_{e → c} w_e x_e
    summed = (stay.float() * own[..., None]).scatter_add(2, index, leave.float() * weight[..., None])
    return torch.where((total > own)[..., None], summed / total[..., None], stay.float()).to(stay.dtype)
