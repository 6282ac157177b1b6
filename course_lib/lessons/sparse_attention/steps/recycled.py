"""What a visual token is worth, and the one token that becomes of several: VFlowOpt, of one image.

Dimension key: N visual tokens, P pixels of a patch, C cells, D width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def importance_and_fused(
    grey: Int[Tensor, "N P"],
    attention: Float[Tensor, "N"],
    alpha: float,
    tokens: Float[Tensor, "N D"],
    cell: Int[Tensor, "N"],
) -> tuple[Float[Tensor, "N"], Float[Tensor, "C D"], Int[Tensor, "C"]]:
    """I_i = a_i + α softmax(H)_i (equations 3 and 4); Σ I_i x_i / Σ I_i of each cell's pruned tokens, and the place of
    the most important of them (equations 6 and 7). Entropies in bits; a cell of −1 is that of a token which stays.

    The library's own steps (attention/visual) do that for batches of whole images.
    """
    if not bool((cell >= 0).any()):
        raise ValueError("got no pruned token; expected a cell of 0 or more for at least one.")
    share = torch.zeros(len(grey), 256).scatter_add(1, grey.long(), torch.ones(grey.shape)) / grey.shape[1]
    entropy = torch.special.entr(share).sum(dim=1) / torch.log(torch.tensor(2.0))
    importance = attention + alpha * entropy.to(attention.dtype).softmax(dim=0)
    weight = importance * (cell == torch.arange(int(cell.max()) + 1)[:, None])  # (C, N)
    fused = weight @ tokens.to(weight.dtype) / weight.sum(dim=1, keepdim=True)
    return importance, fused, weight.argmax(dim=1)
