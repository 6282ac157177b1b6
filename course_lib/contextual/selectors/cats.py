"""CATS: a threshold on the gate's activation. Lee and others, CATS, 2024, https://arxiv.org/abs/2404.08763

Dimension key: T tokens, F neurons.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.fitting.threshold import ThresholdSelector
from course_lib.contextual.selector import Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class CATS(ThresholdSelector):
    """score_i = |act(W_gate x)_i| (section 4): the gate, a third of the MLP, is computed completely; the rest is saved.

    Deviation: in an MLP without a gate, its only activation function replaces the gate's.
    """

    n_read_whole: ClassVar[int] = 1

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        return seen.neurons.activated(seen.x).float().abs()
