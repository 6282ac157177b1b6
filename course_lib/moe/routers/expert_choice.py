"""Expert choice. Zhou and others, Mixture-of-experts with expert choice routing, 2022, https://arxiv.org/abs/2202.09368"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class ExpertChoice(Router):
    """Each expert takes its c T / E most likely tokens by p = softmax(h) over experts (equations 1, 2), with weight p.

    Loads are equal by construction. A token can have from 0 to all experts, c on average. Whether an expert takes a
    token depends on all other tokens of its group, including later ones: in a decoder this leaks information from the
    future.
    """

    capacity_factor: float = 2.0
    chooses: ClassVar[Literal["experts", "tokens"]] = "tokens"

    @property
    def is_causal(self) -> bool:
        return False

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        probs = logits.softmax(dim=1)
        n_real = int(given.real.sum())
        places = min(self.capacity(n_real, logits.shape[1]), n_real)
        score = probs.masked_fill(~given.real[:, None], -1)  # below any probability
        keep = among(highest(score.detach().T, places), len(logits)).T
        return Routing(probs.where(keep, 0), probs, keep, keep)
