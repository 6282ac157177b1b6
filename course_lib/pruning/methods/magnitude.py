"""Magnitude pruning. Han, Pool, Tran, Dally, 2015. https://arxiv.org/abs/1506.02626"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram, Needs


class Magnitude(LayerPruner):
    """Score |W_ij| (section 3): small weights are pruned. It uses no data, so it ignores
    how large the inputs are.

    Deviation: no retraining afterwards, as in all one-shot comparisons on language models.
    """

    needs: ClassVar[Needs] = "nothing"

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return weight.abs().float()
