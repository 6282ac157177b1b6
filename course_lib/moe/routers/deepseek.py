"""DeepSeek-V3's router. DeepSeek-AI, DeepSeek-V3 technical report, 2024, https://arxiv.org/abs/2412.19437"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.checks import check_bias, check_cluster, check_groups, check_number, checked_load
from course_lib.moe.choice import among, highest, sigmoid_shares
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class DeepSeek(Router):
    """s = σ(h); the k best of s + b are chosen, with weights s / Σ s over them (section 2.1.2): b changes only loads.

    Only the `kept_groups` best groups of experts (the nodes of a cluster) are considered; the score of a group is the
    sum of its two best experts. `scaling` is the sum of the weights. No loss trains `bias`; `updated` changes it.
    """

    k: int = 8
    n_groups: int = 1
    kept_groups: int = 1
    scaling: float = 1.0
    bias: Float[Tensor, "E"] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cluster(self.n_groups, self.kept_groups)
        check_number("scaling", self.scaling, above=True)
        check_bias(self.bias)

    @property
    def weight_sum(self) -> tuple[float, float]:
        return self.scaling, self.scaling

    @property
    def learns(self) -> bool:
        return self.k > 1

    def updated(self, load: Float[Tensor, "E"], speed: float = 1e-3) -> "DeepSeek":
        """Increase b_i by `speed` if expert i has less than the mean load, and decrease it if the expert has more."""
        step = speed * (checked_load(load).mean() - load).sign()
        return replace(self, bias=step if self.bias is None else self.bias + step)

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        check_bias(self.bias, logits.shape[1])
        wanted = logits.detach().sigmoid() + (0 if self.bias is None else self.bias)
        keep = among(highest(self._in_best_groups(wanted), self.k), logits.shape[1])
        weights, probs = sigmoid_shares(logits, keep, self.scaling), sigmoid_shares(logits, torch.ones_like(keep))
        return Routing(weights, probs, keep, keep)

    def _in_best_groups(self, wanted: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
        """Set scores outside the best groups to −∞; zero, as in some releases, can beat a negative score inside."""
        size = check_groups(wanted.shape[1], self.n_groups, self.kept_groups, self.k)
        value = wanted.unflatten(1, (-1, size)).topk(min(2, size), dim=2).values.sum(2)  # (T, groups)
        inside = among(highest(value, self.kept_groups), self.n_groups).repeat_interleave(size, dim=1)
        return wanted.masked_fill(~inside, float("-inf"))
