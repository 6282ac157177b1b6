"""Keys and values that are made when a head is chosen, of tokens at which it was not. Deja Vu, 2023, section 4.4.

Dimension key: N tokens, M of them without a key, D width, d size of the head, P positions of a text.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def completed(
    keys: Float[Tensor, "N d"],
    values: Float[Tensor, "N d"],
    position: Int[Tensor, "N"],
    missing: Int[Tensor, "M"],
    stored: Float[Tensor, "M D"],
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
