"""OLMoE's router, the plain top-k formula. Muennighoff and others, OLMoE, 2024, https://arxiv.org/abs/2409.02060"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class OLMoE(Router):
    """y = Σ_{i in top k} p_i E_i(x), p = softmax(h): the weights sum to less than 1. Switch's equation 2 for any k.

    So the output grows with the gate's confidence, and every expert's logit has a gradient, chosen or not.
    """

    k: int = 8

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        keep = among(highest(logits, self.k), logits.shape[1])
        probs = logits.softmax(dim=1)
        return Routing(probs.where(keep, 0), probs, keep, keep)
