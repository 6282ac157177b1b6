"""GShard. Lepikhin and others, GShard, 2020, https://arxiv.org/abs/2006.16668"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import admitted, among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class GShard(Router):
    """The two best experts, with weights g / (g_1 + g_2) (Algorithm 1); the second one with probability min(1, 2 g_2).

    A second choice of small weight is usually dropped, which saves expert capacity. All first choices of a group take
    capacity before any second choice, so a later token can displace an earlier token's second choice: not causal.
    Without a generator the second expert is always used.
    """

    k: ClassVar[int] = 2
    capacity_factor: float | None = 1.0  # relative to 2 T / E

    @property
    def is_causal(self) -> bool:
        return self.capacity_factor is None

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        best, n_experts = highest(logits, 2), logits.shape[1]
        first, second = (among(best[:, i : i + 1], n_experts) & given.real[:, None] for i in (0, 1))
        weights = logits.gather(1, best).softmax(dim=1)  # g_1 and g_2 divided by their sum
        chosen = first | second
        if given.generator is not None:
            drawn = torch.empty_like(weights[:, 1]).uniform_(generator=given.generator)
            second = second & (2 * weights[:, 1] > drawn)[:, None]
        keep = admitted([first, second], self.capacity(int(given.real.sum()), n_experts))
        return Routing(
            torch.zeros_like(logits).scatter(1, best, weights).where(keep, 0), logits.softmax(1), chosen, keep
        )
