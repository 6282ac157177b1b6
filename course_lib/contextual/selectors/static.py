"""One set of neurons for all texts, a baseline of Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, L blocks, n windows of N tokens, F neurons.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.seen import look_through
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.contextual.sizes import sizes_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Static(NeuronSelector):
    """score_i = mean of |h_i| ‖w_i‖ over calibration tokens: the same for every token, so the rest could be pruned.

    Deviation: the paper does not report how it chose its static set.
    """

    importance: Float[Tensor, "L F"] | None = field(default=None, repr=False)

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        sizes = sizes_of(model)
        total = torch.zeros(sizes.n_blocks, sizes.n_neurons, device=model.device)

        def add(block: int, seen: Seen) -> None:
            total[block] += seen.neurons.importance(seen.hidden).sum(0)

        look_through(model, calibration, add)
        return replace(self, importance=total / calibration.numel())

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.importance)
        return self.importance[block].expand(len(seen.x), -1)
