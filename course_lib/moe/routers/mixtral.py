"""Mixtral's router. Jiang and others, Mixtral of experts, 2024, https://arxiv.org/abs/2401.04088"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class Mixtral(Router):
    """w = softmax(TopK(h)) (section 2.1): the weights of the k best logits sum to 1, whatever the other logits are.

    So experts that are copies of one network compute its output. For k = 1 the weight is 1, and the gate learns
    nothing.
    """

    k: int = 2

    @property
    def learns(self) -> bool:
        return self.k > 1

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        keep = among(highest(logits, self.k), logits.shape[1])
        weights = logits.masked_fill(~keep, float("-inf")).softmax(dim=1)
        return Routing(weights, logits.softmax(dim=1), keep, keep)
