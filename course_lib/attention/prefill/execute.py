"""Attention with a block index: key blocks outside it are never multiplied. A kernel on a GPU, plain torch elsewhere.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D head dimension; of one block
of queries, R rows and n key blocks, which are stored as rows of S·D numbers (keys) and S·V numbers (values).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from course_lib.attention.prefill.index import BlockIndex
from course_lib.attention.prefill.pattern import check_heads, check_index
from course_lib.kernels.dispatch import kernel_for


def block_sparse_attention(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    index: BlockIndex,
    scaling: float,
) -> Float[Tensor, "heads T D"]:
    """Attend each query to the keys in the blocks of its index, up to its own position.

    On a GPU, a kernel reads the block lists (`kernels/cache/block_sparse_prefill.py`). On a CPU, we copy the key blocks
    of each block of queries next to each other and compute one matrix product per head and block of queries. Heads
    with a dense index use torch's fused attention.

    We do not use `torch.nn.attention.flex_attention` (`flex.py`): it is slow unless it is compiled, compiling needs a
    C++ compiler and several seconds per text length, and even then it is slower than this loop
    (`course bench sparse_prefill`).

    Raises:
        ValueError: the index has another number of heads or tokens.
    """
    check_heads(query, keys)
    check_index(query, index)
    if values.shape[:2] != keys.shape[:2]:
        raise ValueError(
            f"got keys {tuple(keys.shape)} and values {tuple(values.shape)}; expected equally many heads and tokens."
        )
    settings = {"block_size": index.block_size, "scaling": scaling}
    if kernel := kernel_for("cache.block_sparse_prefill", query, keys, values, **settings):
        inputs = (vectors.contiguous() for vectors in (query, keys, values))
        return kernel.launch(*inputs, *index.lists(), scaling, index.block_size)
    output = query.new_empty(*query.shape[:2], values.shape[2])
    is_dense = index.is_dense
    if is_dense.any():
        output[is_dense] = _dense(query, keys, values, is_dense, scaling)
    group = query.shape[0] // keys.shape[0]
    columns, counts = index.lists()
    counts = counts.tolist()
    blocks = _in_blocks(keys, index), _in_blocks(values, index)  # (H, N, S·D)
    # (S, S): in the block on the diagonal, True if a key comes after the query.
    is_later = torch.ones(index.block_size, index.block_size, dtype=torch.bool, device=query.device).triu(1)
    for head in (~is_dense).nonzero()[:, 0].tolist():
        head_blocks = [vectors[head // group] for vectors in blocks]
        for i, count in enumerate(counts[head]):
            rows = slice(i * index.block_size, min((i + 1) * index.block_size, index.n_tokens))
            if count == i + 1:  # all blocks up to the diagonal: a view, no copy
                selected_blocks = [vectors[:count] for vectors in head_blocks]
            else:
                selected_blocks = [vectors.index_select(0, columns[head, i, :count]) for vectors in head_blocks]
            output[head, rows] = _one_block(query[head, rows] * scaling, *selected_blocks, is_later)
    return output


def _one_block(
    rows: Float[Tensor, "R D"], keys: Float[Tensor, "n SD"], values: Float[Tensor, "n SV"], later: Bool[Tensor, "S S"]
) -> Float[Tensor, "R V"]:
    """Attention of R queries to n blocks of keys, the last of which is the block of the queries themselves."""
    n_keys, size = keys.shape[0] * len(later), len(later)
    logits = rows @ keys.reshape(n_keys, -1).T  # (R, n·S)
    # This also masks the zeros that pad the last block of a text: they come after all of its queries.
    logits[:, -size:].masked_fill_(later[: len(rows)], -torch.inf)
    return logits.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values.reshape(n_keys, -1)


def _in_blocks(vectors: Float[Tensor, "H T D"], index: BlockIndex) -> Float[Tensor, "H N SD"]:
    """Reshape to one row per block, with the last block padded with zeros."""
    n = index.reads.shape[1]
    padded_vectors = pad(vectors, (0, 0, 0, n * index.block_size - index.n_tokens))
    return padded_vectors.reshape(vectors.shape[0], n, index.block_size * vectors.shape[2])


def _dense(
    query: Float[Tensor, "heads T D"],
    keys: Float[Tensor, "H T D"],
    values: Float[Tensor, "H T D"],
    chosen: Bool[Tensor, "heads"],
    scaling: float,
) -> Float[Tensor, "some T D"]:
    """Compute causal attention of the chosen heads with torch's fused attention."""
    # Each query head needs a key-value head of its own, unless all heads take part: then torch does the grouping.
    key_value_head = chosen.nonzero()[:, 0] // (query.shape[0] // keys.shape[0])
    if chosen.all():
        key_value_head, enable_gqa = slice(None), True
    else:
        enable_gqa = False
    inputs = (query[chosen][None], keys[key_value_head][None], values[key_value_head][None])
    return scaled_dot_product_attention(*inputs, is_causal=True, scale=scaling, enable_gqa=enable_gqa)[0]
