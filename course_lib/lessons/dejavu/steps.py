"""Reference solutions of lesson 09 with their checks of arguments: missing keys, training pairs, and break-even.

Dimension key: L blocks, N tokens, M of them without a key, X stored inputs, D width, F neurons, d size of a head, P
positions of a text, r rank of the predictors; n blocks ahead.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def completed(
    keys: Float[Tensor, "N d"],
    values: Float[Tensor, "N d"],
    position: Int[Tensor, "N"],
    missing: Int[Tensor, "M"],
    stored: Float[Tensor, "X D"],
    key_weight: Float[Tensor, "d D"],
    value_weight: Float[Tensor, "d D"],
    cos: Float[Tensor, "P d"],
    sin: Float[Tensor, "P d"],
) -> tuple[Float[Tensor, "N d"], Float[Tensor, "N d"]]:
    """All keys and values, of which the missing ones are made from their own x: R_p W_k x at position p, and W_v x.

    stored: what the attention read at the missing tokens. cos, sin: a row for each position; entry i is turned with
    entry i + d/2.

    Raises:
        ValueError: where there is not one stored input for each missing token.
    """
    if len(stored) != len(missing):
        raise ValueError(f"got {len(stored)} stored inputs for {len(missing)} missing tokens; expected one for each.")
    fresh = torch.nn.functional.linear(stored, key_weight)
    (first, second), at = fresh.chunk(2, dim=1), position[missing]
    partner = torch.hstack([second.neg(), first])
    return (
        keys.index_copy(0, missing, torch.addcmul(fresh * cos[at], partner, sin[at])),
        values.index_copy(0, missing, torch.nn.functional.linear(stored, value_weight)),
    )


def pairs(
    stream: Float[Tensor, "places T D"], active: Bool[Tensor, "L T F"], ahead: int
) -> tuple[Float[Tensor, "P T D"], Bool[Tensor, "P T F"]]:
    """(what the MLP of block l − n reads, the neurons that block l needs), for every block l from n on.

    Args:
        stream: the residual stream in the order of time: the embedding, then after each attention and each MLP.

    Raises:
        ValueError: where the stream is not one state longer than twice the blocks, or where nothing is so early.
    """
    n_blocks = len(active)
    if len(stream) != 2 * n_blocks + 1:
        raise ValueError(
            f"got a stream of {len(stream)} states for {n_blocks} blocks; expected {2 * n_blocks + 1}: the embedding, "
            "and one after each attention and each MLP."
        )
    if not 0 <= ahead < n_blocks:
        raise ValueError(f"got {ahead} blocks ahead; expected 0 to {n_blocks - 1}, one less than there are blocks.")
    predicted = n_blocks - ahead
    return stream[1 : 2 * predicted : 2], active.narrow(0, ahead, predicted)


Number = int | float


def payoff(
    width: int,
    neurons: int,
    blocks: int,
    rank: int,
    others: Number,
    density: Number,
    gather: Number,
    prompt: Number,
    n_tokens: int,
) -> tuple[Number, Number, Number]:
    """How many times faster a token is, and prompt and answer together; the density at which nothing is won.

    With m the fraction of a dense token's time for its MLPs, and c = r (D + F) / 3DF the predictor's size in MLPs:
    1 / (1 − m + m (gather · density + c)), Amdahl's law; then once more for what the prompt leaves; (1 − c) / gather.

    Args:
        others: numbers that a token reads outside of the MLPs.
        gather: how much longer a gathered number takes than one that is read in order.
        prompt: how long reading the prompt takes, in decoded dense tokens.
    """
    of_mlps = 3 * width * neurons * blocks / (3 * width * neurons * blocks + others)
    of_predictor = rank * (1 / width + 1 / neurons) / 3
    token = _amdahl(of_mlps, gather * density + of_predictor)
    decoded = n_tokens / (prompt + n_tokens)
    return token, _amdahl(decoded, 1 / token), max(0.0, 1 - of_predictor) / gather


def _amdahl(share: Number, time: Number) -> Number:
    """How many times faster the whole is, when a fraction of it takes this much of its time."""
    return 1 / (1 - share + share * time)
