"""Switch. Fedus, Zoph, Shazeer, Switch transformers, 2021, https://arxiv.org/abs/2101.03961"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.checks import check_number
from course_lib.moe.choice import admitted, among, highest
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class Switch(Router):
    """y = p_i E_i(x), i the most likely expert (equations 1, 2). p is not renormalised: it is the gate's only gradient.

    An expert processes c T / E tokens (3) in their order. Dropped tokens have weight 0: only the residual carries them.

    Args:
        jitter: during training, the gate's input is multiplied by a uniform number from [1 - jitter, 1 + jitter], as in
            the text (the paper's pseudo-code adds it to the logits). The experts get the input without jitter.
    """

    capacity_factor: float | None = 1.25
    jitter: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("jitter", self.jitter)

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def perturb(self, tokens: Float[Tensor, "T D"], generator: torch.Generator) -> Float[Tensor, "T D"]:
        drawn = torch.empty_like(tokens).uniform_(1 - self.jitter, 1 + self.jitter, generator=generator)
        return tokens * drawn  # not in place: the experts read the same tensor

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        probs = logits.softmax(dim=1)
        chosen = among(highest(logits, 1), logits.shape[1]) & given.real[:, None]
        keep = admitted([chosen], self.capacity(int(given.real.sum()), logits.shape[1]))
        return Routing(probs.where(keep, 0), probs, chosen, keep)
