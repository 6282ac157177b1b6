"""Choose neurons by the token itself, without context. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, n windows of N tokens, F neurons.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.attention.alone import AloneBlock, alone_blocks
from course_lib.contextual.selector import NeuronSelector, Seen


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenAlone(NeuronSelector):
    """score_i = |h_i(x̃)| ‖w_i‖, where x̃ is the MLP input of a token without context and with e as the residual.

    The paper's non-contextual sparsity (section 5.2): the neurons that are large if the embedding e itself is the input
    of the block. This implementation saves no time; but the score depends only on the token, so a table could store it.
    Deviation: the paper does not say whether attention sees the embeddings of other tokens; here it does not.
    """

    blocks: tuple[AloneBlock, ...] | None = field(default=None, repr=False)

    n_read_whole: ClassVar[int] = 2

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        return replace(self, blocks=alone_blocks(model))

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.blocks)
        x = self.blocks[block].read(seen.embedding)
        return seen.neurons.importance(seen.neurons.values(x))
