"""Noisy top-k. Shazeer and others, Outrageously large neural networks, 2017, https://arxiv.org/abs/1701.06538"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.choice import among, highest
from course_lib.moe.losses import sent_probability
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class NoisyTopK(Router):
    """G = softmax(KeepTopK(H)), H = x W_g + z softplus(x W_noise), z from a standard normal (equations 3 to 5).

    The noise is added before the choice, and the softmax follows it. A token near the edge is sometimes sent to another
    expert, which makes a smooth estimate of the load possible (8). For k = 1 the weight is 1: the gate learns nothing.
    """

    k: int = 4
    needs: ClassVar[Literal["logits", "ids", "noise"]] = "noise"

    @property
    def learns(self) -> bool:
        return self.k > 1

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        noisy, sent = logits, None
        if given.generator is not None:
            deviation = F.softplus(given.noise.to(logits.dtype).where(given.real[:, None], 0))
            drawn = torch.empty_like(logits).normal_(generator=given.generator)
            noisy = logits + drawn * deviation
            if self.k < logits.shape[1]:  # otherwise each token is sent to all of them
                sent = sent_probability(logits, noisy, deviation, self.k)
        keep = among(highest(noisy, self.k), logits.shape[1])
        weights = noisy.masked_fill(~keep, float("-inf")).softmax(dim=1)
        return Routing(weights, logits.softmax(dim=1), keep, keep, sent=sent)
