"""Attention over an index of blocks: what is not read is not computed. A kernel on a GPU, plain torch elsewhere.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, D size of a head.
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
    """Attend each query to the keys that its block reads, up to its own position.

    On a GPU, a kernel reads the lists of blocks (`kernels/cache/block_sparse_prefill.py`). On a CPU, this is one
    product per block of queries and head, with the keys that it reads copied next to each other. The library uses this
    rather than `torch.nn.attention.flex_attention` (`flex.py`), which is slow unless compiled, takes a C++ compiler and
    seconds for each length, and is slower than this loop even then (`course bench sparse_prefill`). Heads whose index
    is dense go to torch's fused attention.

    Raises:
        ValueError: for an index of other heads or another length.
    """
    check_heads(query, keys)
    check_index(query, index)
    if values.shape[:2] != keys.shape[:2]:
        raise ValueError(
            f"got keys {tuple(keys.shape)} and values {tuple(values.shape)}; expected as many of both, head by head."
        )
    settings = {"block_size": index.block_size, "scaling": scaling}
    if kernel := kernel_for("cache.block_sparse_prefill", query, keys, values, **settings):
        text = (each.contiguous() for each in (query, keys, values))
        return kernel.launch(*text, *index.lists(), scaling, index.block_size)
    output = query.new_empty(*query.shape[:2], values.shape[2])
    dense = index.is_dense
    if dense.any():
        output[dense] = _dense(query, keys, values, dense, scaling)
    group = query.shape[0] // keys.shape[0]
    columns, counts = index.lists()
    counts = counts.tolist()
    blocks = _in_blocks(keys, index), _in_blocks(values, index)  # (H, N, S·D)
    later = torch.ones(index.block_size, index.block_size, dtype=torch.bool, device=query.device).triu(1)
    for head in (~dense).nonzero()[:, 0].tolist():
        stored = [each[head // group] for each in blocks]
        for i, count in enumerate(counts[head]):
            rows = slice(i * index.block_size, min((i + 1) * index.block_size, index.n_tokens))
            if count == i + 1:  # all blocks so far: no copy
                some = [each[:count] for each in stored]
            else:
                some = [each.index_select(0, columns[head, i, :count]) for each in stored]
            output[head, rows] = _one_block(query[head, rows] * scaling, *some, later)
    return output


def _one_block(
    rows: Float[Tensor, "R D"], keys: Float[Tensor, "n SD"], values: Float[Tensor, "n SV"], later: Bool[Tensor, "S S"]
) -> Float[Tensor, "R V"]:
    """What one block of queries reads of n blocks of keys, of which the last is its own."""
    n_keys, size = keys.shape[0] * len(later), len(later)
    logits = rows @ keys.reshape(n_keys, -1).T  # (R, n·S)
    # A ragged block's missing keys are later than any of its queries.
    logits[:, -size:].masked_fill_(later[: len(rows)], -torch.inf)
    return logits.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values.reshape(n_keys, -1)


def _in_blocks(vectors: Float[Tensor, "H T D"], index: BlockIndex) -> Float[Tensor, "H N SD"]:
    """One row per block, the last filled up with zeros."""
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
