"""A pass of speculative decoding with chance that comes from outside, and what a draft gains.

Dimension key: k drafted tokens, V words of the vocabulary.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention.speculative.accept import expected_tokens, residual

Number = int | float


def tokens_of_a_pass(
    drafted: Int[Tensor, "k"],
    q: Float[Tensor, "k V"],
    p: Float[Tensor, "k+1 V"],
    luck: Float[Tensor, "k+1"],
    stop: int,
) -> tuple[int, ...]:
    """The drafted tokens that stay and one that is drawn, up to `stop`, which ends a text.

    Args:
        luck: in [0, 1). Token x at place i stays where luck_i < p_i(x) / q_i(x); the last number draws the token added.
    """
    at = torch.arange(len(drafted))
    stays = luck[:-1] < p[at, drafted] / q[at, drafted]
    n = int(stays.long().cumprod(dim=0).sum())
    weights = p[n] if n == len(drafted) else residual(p[n], q[n])
    added = int((weights.double().cumsum(dim=0) <= luck[-1]).sum().clamp(max=len(weights) - 1))
    tokens = [*drafted[:n].tolist(), added]
    return tuple(tokens[: tokens.index(stop) + 1] if stop in tokens else tokens)


def tokens_and_gain(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    """Tokens a pass, (1 − α^{k+1}) / (1 − α), and by how much less a token costs than with the model alone.

    Args:
        model: the cost of a pass over one token, in any unit. further: of each token more in that pass. draft: of one
            drafted token.
    """
    tokens = expected_tokens(float(acceptance), k)
    per_token = (model + k * (further + draft)) / tokens
    return tokens, model - per_token
