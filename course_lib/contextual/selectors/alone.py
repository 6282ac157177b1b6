"""Neurons by the token alone, passed through the block. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

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
    """score_i = |h_i(x̃)| ‖w_i‖, x̃ what the block's MLP reads of a token without company, e in place of the residual.

    The paper's non-contextual sparsity (section 5.2): what is large when the embedding e itself goes through the block.
    Computed so it saves nothing; since it depends on the token alone, a table of all tokens could hold it.
    Deviation: whether attention may see the embeddings of other tokens the paper does not say; here it does not.
    """

    blocks: tuple[AloneBlock, ...] | None = field(default=None, repr=False)

    n_read_whole: ClassVar[int] = 2

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        return replace(self, blocks=alone_blocks(model))

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.blocks)
        x = self.blocks[block].read(seen.embedding)
        return seen.neurons.importance(seen.neurons.values(x))
