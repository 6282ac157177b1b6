"""Multiply rows of a matrix by one vector: all rows, gathered rows, or chosen rows without a copy.

Dimension key: D width, F neurons, K chosen neurons.
"""

import functools
import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor

SAMPLED = (torch.float32, torch.float64)  # what torch.sparse.sampled_addmm takes


def product(
    rows: Float[Tensor, "K D"], x: Float[Tensor, "D"], bias: Tensor | None, index: Int[Tensor, "K"] | None = None
) -> Float[Tensor, "K"]:
    """Multiply the rows by x and add their biases; `index` selects the biases, None selects all."""
    if bias is None:
        return torch.mv(rows, x)
    return torch.addmv(bias if index is None else bias.index_select(0, index), rows, x)


def sampled_product(
    weight: Float[Tensor, "F D"], x: Float[Tensor, "D"], bias: Tensor | None, index: Int[Tensor, "K"]
) -> Float[Tensor, "K"]:
    """Multiply chosen rows by x without copying them: only these entries of the product x Wᵀ are computed.

    Raises:
        ValueError: the type is half precision, which torch's sampled product does not support.
    """
    if weight.dtype not in SAMPLED:
        raise ValueError(
            f"got weights of {weight.dtype} for a sampled product; expected torch.float32 or torch.float64, all that "
            "torch has it for. Use by_bag, by_rows or by_bundle."
        )
    _announced()
    ends = torch.tensor([0, len(index)], device=index.device)  # the one row of places
    start = x.new_zeros(len(index)) if bias is None else bias.index_select(0, index)
    places = torch.sparse_csr_tensor(ends, index, start, size=(1, len(weight)), check_invariants=False)
    return torch.sparse.sampled_addmm(places, x[None], weight.T).values()


@functools.cache
def _announced() -> None:
    """Trigger torch's one-time warning that sparse tensors may change here, where it is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))
