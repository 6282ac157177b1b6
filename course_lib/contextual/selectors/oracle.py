"""The neurons that turn out to matter. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, F neurons.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.selector import NeuronSelector, Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class Oracle(NeuronSelector):
    """score_i = |h_i| ‖w_i‖, the length of what neuron i adds to the output (section 3.1): nothing can be saved by it.

    Deviation: the paper records the choice in a dense pass (see recorded.py); here each block chooses by what it reads
    after the blocks below have lost their neurons.
    """

    reads_hidden: ClassVar[bool] = True

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return seen.neurons.importance(seen.hidden)
