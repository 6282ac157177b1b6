"""The neurons with the largest contributions. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, F neurons.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.selector import NeuronSelector, Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class Oracle(NeuronSelector):
    """score_i = |h_i| ‖w_i‖, the norm of neuron i's contribution to the output (section 3.1). An oracle saves no time.

    Deviation: the paper records the choice in a dense pass (see recorded.py); here each block chooses by its actual
    input, which depends on the neurons skipped in earlier blocks.
    """

    reads_hidden: ClassVar[bool] = True

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return seen.neurons.importance(seen.hidden)
