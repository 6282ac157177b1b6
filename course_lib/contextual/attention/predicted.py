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
    """Collect for every token the input of attention and the set of active heads, as data for `train_predictors`.

    The n_active heads whose parts of the output have the largest norms are active (section 4.1, "large output norms").
    Deviation: the paper gives no threshold for large norms; here the same number of heads is active for every token.

    Raises:
        ValueError: n_active is not between 1 and the number of heads minus 1; no windows; a lookahead of as many
            blocks as the model has.
    """
    n_heads, n_blocks = heads(model).n_query, len(blocks(model))
    if isinstance(n_active, bool) or not 0 < n_active < n_heads:
        raise ValueError(f"got n_active {n_active!r}; expected 1 to {n_heads - 1} of the {n_heads} heads.")
    if isinstance(lookahead, bool) or not 0 <= lookahead < n_blocks:
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {n_blocks - 1} blocks.")
    read, active = ([[] for _ in range(n_blocks)] for _ in range(2))

    def look(block: int, seen: SeenHeads) -> None:
        read[block].append(seen.x.float().cpu())
        active[block].append(keep_highest(seen.part_norms, n_heads - n_active).cpu())

    look_through_heads(model, windows, look)
    return Collected([torch.cat(parts) for parts in read], [torch.cat(parts) for parts in active], lookahead)


def predicted_heads(predictors: Sequence[Predictor], lookahead: int = 0) -> HeadScore:
    """score = U V x, where x is the input of attention `lookahead` blocks earlier, or of block 0 in the first blocks.

    Use it in `contextual_heads(model, predicted_heads(…), keep=7, lookahead=…)`, with the same lookahead twice.
    """

    def score(seen: SeenHeads, block: int) -> Float[Tensor, "T H"]:
        if block >= len(predictors):
            raise ValueError(f"got {len(predictors)} predictors, and block {block}; expected one predictor per block.")
        earlier = max(block - lookahead, 0)
        x = seen.x if earlier == block else seen.earlier[earlier]
        width = predictors[block].into.in_features
        if x.shape[1] != width:
            raise ValueError(f"got a predictor of {width} numbers at block {block}; this model gives {x.shape[1]}.")
        return predictors[block](as_it_reads(predictors[block], x))

    return before_attention(score)
