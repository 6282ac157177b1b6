"""What a predictor of neurons reads, and what it shall say: its pairs of input and label.

Dimension key: L blocks, T tokens, D width, F neurons; n blocks ahead.
"""

from jaxtyping import Bool, Float
from torch import Tensor


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
