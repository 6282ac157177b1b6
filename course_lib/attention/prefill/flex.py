"""Compute the same index with torch's block-sparse attention, `torch.nn.attention.flex_attention`.

It is fast only if it is compiled, which takes a C++ compiler and several seconds per shape. So the library uses the
loop of `execute.py`, and `course bench sparse_prefill` compares the two.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
"""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from course_lib.attention.prefill.index import BlockIndex


def flex_block_sparse_attention(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    mask: BlockMask,
    scaling: float,
    attend: Callable[..., Tensor] = flex_attention,
) -> Float[Tensor, "heads T D"]:
    """Compute `block_sparse_attention` without gradients; `attend` is flex_attention, or `compiled()`."""
    inputs = (part[None] for part in (query, keys, values))
    with torch.no_grad():  # with gradients, each mode would be compiled separately
        return attend(*inputs, block_mask=mask, scale=scaling, enable_gqa=True)[0]


def block_mask(index: BlockIndex) -> BlockMask:
    """Return the index as a BlockMask: blocks before the diagonal are read completely, those on it up to each query.

    Compiled, flex_attention reads the lists of blocks; otherwise it only uses the rule for a query and a key. Both are
    equivalent.
    """
    reads, size = index.reads, index.block_size
    diagonal = torch.eye(reads.shape[1], dtype=torch.bool, device=reads.device)
    return BlockMask.from_kv_blocks(
        *_lists(reads & diagonal),
        *_lists(reads & ~diagonal),
        BLOCK_SIZE=size,
        mask_mod=lambda batch, head, query, key: (key <= query) & reads[head, query // size, key // size],
        seq_lengths=(index.n_tokens, index.n_tokens),
    )


@cache
def compiled() -> Callable[..., Tensor]:
    """Return flex_attention compiled per shape; if compiling fails there is an error instead of the slow version."""
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _lists(reads: Bool[Tensor, "heads N N"]) -> tuple[Int[Tensor, "1 heads N"], Int[Tensor, "1 heads N N"]]:
    """Return the number of key blocks for each block of queries, and their indices first; one shape per text length."""
    columns = reads.int().argsort(dim=2, descending=True, stable=True)
    return reads.sum(dim=2, dtype=torch.int32)[None], columns.int()[None].contiguous()
