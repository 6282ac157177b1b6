"""A trained predictor of heads for each block. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: n windows of N tokens, T tokens, D width, H query heads, L blocks.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.attention.heads import HeadScore, before_attention
from course_lib.contextual.attention.parts import SeenHeads, look_through_heads
from course_lib.contextual.predictor.collect import Collected
from course_lib.contextual.predictor.two_layer import Predictor, as_it_reads
from course_lib.models import blocks, heads
from course_lib.sparsity.ranking import keep_highest


def collect_heads(model: PreTrainedModel, windows: Int[Tensor, "n N"], n_active: int, lookahead: int = 0) -> Collected:
    """What attention reads at every token, and which of its heads count as active there, for `train_predictors`.

    Active are the n_active heads with the longest parts of the output (section 4.1, "large output norms").
    Deviation: the paper does not say how large is large; here it is a number of heads, the same for every token.

    Raises:
        ValueError: a number of heads that keeps none, or all; no windows; a lookahead beyond the first block.
    """
    n_heads, n_blocks = heads(model).n_query, len(blocks(model))
    if isinstance(n_active, bool) or not 0 < n_active < n_heads:
        raise ValueError(f"got n_active {n_active!r}; expected 1 to {n_heads - 1} of the {n_heads} heads.")
    if isinstance(lookahead, bool) or not 0 <= lookahead < n_blocks:
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {n_blocks - 1}, blocks before the own.")
    read, active = ([[] for _ in range(n_blocks)] for _ in range(2))

    def look(block: int, seen: SeenHeads) -> None:
        read[block].append(seen.x.float().cpu())
        active[block].append(keep_highest(seen.part_norms, n_heads - n_active).cpu())

    look_through_heads(model, windows, look)
    return Collected([torch.cat(parts) for parts in read], [torch.cat(parts) for parts in active], lookahead)


def predicted_heads(predictors: Sequence[Predictor], lookahead: int = 0) -> HeadScore:
    """score = U V x, x what attention reads `lookahead` blocks before, or in block 0 where there is none so early.

    For `contextual_heads(model, predicted_heads(…), keep=7, lookahead=…)`, with the same lookahead in both places.
    """

    def score(seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
        if block >= len(predictors):
            raise ValueError(f"got {len(predictors)} predictors, and block {block}; expected one for each block.")
        earlier = max(block - lookahead, 0)
        x = seen.x if earlier == block else seen.earlier[earlier]
        width = predictors[block].into.in_features
        if x.shape[1] != width:
            raise ValueError(f"got a predictor of {width} numbers at block {block}; this model gives {x.shape[1]}.")
        return predictors[block](as_it_reads(predictors[block], x))

    return before_attention(score)
