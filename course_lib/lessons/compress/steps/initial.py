"""Where a prompt begins: with rows of the vocabulary, drawn by lot.

Dimension key: V tokens of the vocabulary, P vectors of the prompt, D width.
"""

from jaxtyping import Float
from torch import Tensor


def begun(
    table: Float[Tensor, "V D"], lots: Float[Tensor, "V"], n: int, step: Float[Tensor, "P D"]
) -> tuple[Float[Tensor, "P D"], Float[Tensor, "V D"]]:
    """The n rows of the largest lots less a first step, and the table, which shares no memory with them."""
    if not 1 <= n <= len(table) or len(step) != n:
        raise ValueError(
            f"got n={n}, a step of {len(step)} vectors and {len(table)} tokens; expected as many vectors as n, from 1 "
            "to all tokens."
        )
    chosen = lots.sort(descending=True).indices.narrow(0, 0, n)
    return table.index_select(0, chosen).sub_(step), table
