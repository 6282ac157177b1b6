"""Attention over an index of blocks, in plain torch: what is not read is not computed.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from course_lib.attention.prefill.index import BlockIndex
from course_lib.attention.prefill.pattern import check_heads


def block_sparse_attention(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    index: BlockIndex,
    scaling: float,
) -> Float[Tensor, "heads T D"]:
    """Softmax over the keys that each query's block reads, up to its own; what those keys hold.

    One product a block of queries and head, with the keys that it reads laid beside each other. On a CPU that costs
    less than `torch.nn.attention.flex_attention` with the same blocks, and needs no compiler. Heads whose index is
    dense go to torch's fused attention.

    Raises:
        ValueError: for an index of other heads or another length.
    """
    check_heads(query, keys)
    if index.reads.shape[0] != query.shape[0] or index.n_tokens != query.shape[1] or values.shape[:2] != keys.shape[:2]:
        raise ValueError(
            f"got an index of {index.reads.shape[0]} heads and {index.n_tokens} tokens for queries "
            f"{tuple(query.shape)} and values {tuple(values.shape)}; expected the index of these queries and keys."
        )
    output = query.new_empty(*query.shape[:2], values.shape[2])
    dense = index.is_dense
    if dense.any():
        output[dense] = _dense(query, keys, values, dense, scaling)
    group = query.shape[0] // keys.shape[0]
    columns, counts = index.lists()
    counts = counts.tolist()
    blocks = _in_blocks(keys, index), _in_blocks(values, index)  # (H, N, S·D)
    for head in (~dense).nonzero()[:, 0].tolist():
        stored = tuple(each[head // group] for each in blocks)
        for i in range(len(counts[head])):
            some = slice(i * index.block_size, min((i + 1) * index.block_size, index.n_tokens))
            output[head, some] = _one_block(
                query[head, some] * scaling, *stored, columns[head, i, : counts[head][i]], index.block_size
            )
    return output


def _one_block(
    rows: Float[Tensor, "R D"],
    keys: Float[Tensor, "N SD"],
    values: Float[Tensor, "N SV"],
    columns: Tensor,
    block_size: int,
) -> Float[Tensor, "R V"]:
    """What one block of queries reads of the key blocks in `columns`, of which the last is its own."""
    n = columns.shape[0]
    everything = n == int(columns[-1]) + 1  # all blocks so far: no copy
    keys, values = (
        (each[:n] if everything else each.index_select(0, columns)).view(n * block_size, -1) for each in (keys, values)
    )
    logits = rows @ keys.T  # (R, n·S)
    later = torch.ones(rows.shape[0], block_size, dtype=torch.bool, device=rows.device).triu(1)
    logits[:, -block_size:].masked_fill_(later, -torch.inf)  # a ragged block's missing keys are later than any query
    return logits.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values


def _in_blocks(vectors: Float[Tensor, "H T D"], index: BlockIndex) -> Float[Tensor, "H N SD"]:
    """A row a block, the last filled up with zeros."""
    n = index.reads.shape[1]
    filled = pad(vectors, (0, 0, 0, n * index.block_size - index.n_tokens))
    return filled.reshape(vectors.shape[0], n, index.block_size * vectors.shape[2])


def _dense(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    chosen: Bool[Tensor, "heads"],
    scaling: float,
) -> Float[Tensor, "some T D"]:
    """Causal attention of some of the heads."""
    shared = chosen.nonzero()[:, 0] // (query.shape[0] // keys.shape[0])
    if chosen.all():
        shared, enable_gqa = slice(None), True
    else:
        enable_gqa = False
    some = (query[chosen][None], keys[shared][None], values[shared][None])
    return scaled_dot_product_attention(*some, is_causal=True, scale=scaling, enable_gqa=enable_gqa)[0]
