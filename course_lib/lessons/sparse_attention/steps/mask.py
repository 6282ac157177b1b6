"""From lines of blocks to what each query may read.

Dimension key: T tokens in N blocks of S, the last of them ragged.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.attention.prefill.index import always_read, n_blocks
from course_lib.attention.prefill.lines import where_lines_are


def token_mask(
    columns: Bool[Tensor, "N"], diagonals: Bool[Tensor, "N"], n_tokens: int, block_size: int
) -> Bool[Tensor, "T T"]:
    """Keys up to the query's own that lie in a chosen column or diagonal of blocks, in the first column or the main
    diagonal."""
    n = n_blocks(n_tokens, block_size)
    if len(columns) != n or len(diagonals) != n:
        raise ValueError(
            f"got {len(columns)} columns and {len(diagonals)} diagonals; expected {n} of each for {n_tokens} tokens in "
            f"blocks of {block_size}."
        )
    reads = where_lines_are(columns[None], diagonals[None])[0] | always_read(n)
    return by_tokens(reads, n_tokens, block_size)


def by_tokens(reads: Bool[Tensor, "N N"], n_tokens: int, block_size: int) -> Bool[Tensor, "T T"]:
    """A map of blocks as one of tokens, causal."""
    block = torch.arange(n_tokens) // block_size
    return reads[block[:, None], block] & torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
