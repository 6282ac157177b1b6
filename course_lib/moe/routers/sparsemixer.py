"""SparseMixer. Liu, Gao, Chen, Sparse backpropagation for MoE training, 2023, https://arxiv.org/abs/2310.00811"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.checks import check_number
from course_lib.moe.choice import among, draw, factor_of, near_best, scaled
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class SparseMixer(Router):
    """Sample one expert D from π = softmax(h). Its weight is π_D, or half of it at random; its gradient is doubled.

    The two weights are the points of the midpoint rule: their mean gradient contains, to second order, the part that
    sampling hides and the multiplier's part. As released: the weight of the most likely expert is never halved, and an
    expert whose logit is below the best by more than 2 ε of its size is never sampled (this depends on the zero point).

    Deviation: the released module multiplies its output by a learnable scale per channel, initially 1. The scale is a
    factor on the rows of the experts' last matrix, so here it is part of this matrix.
    """

    eps: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps", self.eps)

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        masked = logits.masked_fill(~near_best(logits, self.eps), float("-inf"))
        pi = masked.softmax(dim=1)
        drawn = draw(masked, given.generator)  # (T, 1)
        multiplier = pi.gather(1, drawn)
        if given.generator is not None:
            factor = factor_of(drawn, masked, low=1 / 2, often=1 / 2, generator=given.generator)
            multiplier = scaled(multiplier, factor, slope=2.0)
        keep = among(drawn, logits.shape[1])
        weights = logits.new_zeros(logits.shape).scatter(1, drawn, multiplier)
        return Routing(weights, logits.softmax(dim=1), keep, keep)
