"""Measure the fraction of dense attention that an index reads; this is as expensive as dense attention.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.index import BlockIndex
from course_lib.attention.prefill.lines import last_weights
from course_lib.attention.prefill.pattern import check_heads, check_index
from course_lib.settings import check_count


def coverage(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    index: BlockIndex,
    scaling: float,
    n_last: int | None = None,
) -> Float[Tensor, "heads"]:
    """Return Σ_j softmax(q_i Kᵀ)_j over the keys that the index reads, as the mean over queries i.

    Args:
        n_last: the number of last queries in the mean; None for all.

    Raises:
        ValueError: the index has other heads or another length, or there is no query to measure.
    """
    check_heads(query, keys)
    check_index(query, index)
    if n_last is not None:
        check_count("n_last", n_last, unit="queries")
    n_tokens, size = index.n_tokens, index.block_size
    first = 0 if n_last is None else max(0, n_tokens - n_last)
    total = query.new_zeros(query.shape[0], dtype=torch.float32)
    for i in range(first // size, index.reads.shape[1]):
        end = min((i + 1) * size, n_tokens)
        n_rows = end - max(first, i * size)
        weights = last_weights(query[:, :end], keys[:, :end], scaling, n_rows)  # (heads, R, end)
        read = index.reads[:, i].repeat_interleave(size, dim=1)[:, None, :end]
        total += (weights * read).sum(dim=(1, 2))
    return total / (n_tokens - first)
