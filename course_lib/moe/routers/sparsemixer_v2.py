"""SparseMixer-v2. Liu and others, GRIN: gradient-informed MoE, 2024, https://arxiv.org/abs/2409.12136"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.checks import check_number
from course_lib.moe.choice import among, draw, factor_of, near_best, scaled
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class SparseMixerV2(Router):
    """Sample k experts one after the other; the weight of each is π_D among the remaining experts, or a third of it.

    The full weight with probability 1/4 and a third with 3/4 are Heun's third-order rule for the gradient that sampling
    hides. As released, and as in PhiMoE: the weight of the most likely expert is never reduced, each draw ignores the
    experts before it, and experts below the best by more than 2 ε of its size are excluded. Weights need not sum to 1.
    """

    k: int = 2
    eps: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps", self.eps)

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, float(self.k)

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        left, weights = logits, logits.new_zeros(logits.shape)
        keep = among(logits.new_zeros(len(logits), 0).long(), logits.shape[1])
        for _ in range(self.k):
            masked = left.masked_fill(~near_best(left, self.eps), float("-inf"))
            drawn = draw(masked, given.generator)  # (T, 1)
            multiplier = masked.softmax(dim=1).gather(1, drawn)
            if given.generator is not None:
                factor = factor_of(drawn, masked, low=1 / 3, often=3 / 4, generator=given.generator)
                multiplier = scaled(multiplier, factor, slope=1.0)
            weights = weights.scatter(1, drawn, multiplier)
            keep = keep | among(drawn, logits.shape[1])
            left = left.scatter(1, drawn, float("-inf"))
        return Routing(weights, logits.softmax(dim=1), keep, keep)
