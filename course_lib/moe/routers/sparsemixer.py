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
    """Draws one expert of π = softmax(h); its weight is π_D, or half of it every other time, and its gradient doubled.

    The two points are the ends of the mid-point rule: their mean is the gradient that sampling hides plus the one of
    the multiplier, to second order. As released: the most likely expert is never halved, and experts whose logit lies
    below the best by more than 2 ε of its size are never drawn (which depends on where zero is).

    Deviation: the released module multiplies its output by a learnable scale of each channel, ones at first. It is a
    factor on the rows of the experts' last matrix, so it is left to them.
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
