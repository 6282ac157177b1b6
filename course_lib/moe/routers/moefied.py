"""The router of MoEfication. Zhang, Lin, Liu, Li, Sun, Zhou, MoEfication, 2021, https://arxiv.org/abs/2110.01786"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class MoEfied(Router):
    """y = Σ_{i in top k} E_i(x), each with weight 1: the experts are parts of one network.

    With k = E this is the whole network. The gate is trained separately, since the sum has no gradient for it.
    """

    k: int = 2

    @property
    def learns(self) -> bool:
        return False

    @property
    def weight_sum(self) -> tuple[float, float]:
        return float(self.k), float(self.k)

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        keep = among(highest(logits, self.k), logits.shape[1])
        return Routing(keep.to(logits.dtype), logits.softmax(dim=1), keep, keep)
