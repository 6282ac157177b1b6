"""The attention of the last queries of a prompt, and the vertical and slash lines in it.

A column of the attention matrix that many queries attend to is a vertical line; keys at the same distance from their
queries form a slash. FlexPrefill (https://arxiv.org/abs/2502.20766, section 3.1) uses only the last block of queries,
since only these can attend to all keys.

Dimension key: H key-value heads, heads = H * G query heads, T tokens in N blocks of S, R last queries, D size of a
head.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from course_lib.attention.prefill.index import causal_blocks, n_blocks
from course_lib.kernels.dispatch import kernel_for


def last_weights(
    query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, n_last: int
) -> Float[Tensor, "heads R T"]:
    """Return the softmax attention of the last queries in float32."""
    n_tokens = keys.shape[1]
    rows = query[:, -n_last:].float() * scaling
    grouped = rows.reshape(keys.shape[0], -1, query.shape[2])  # (H, G·R, D): a group's queries share one product
    logits = (grouped @ keys.float().transpose(1, 2)).view(*rows.shape[:2], n_tokens)
    n_last = rows.shape[1]  # at most the number of queries
    later = torch.ones(n_last, n_last, dtype=torch.bool, device=keys.device).triu(1)
    logits[:, :, -n_last:].masked_fill_(later, -torch.inf)
    return logits.softmax(dim=-1)


def line_masses(
    query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, block_size: int
) -> tuple[Float[Tensor, "heads N"], Float[Tensor, "heads N"]]:
    """Return the last block of queries' attention to columns and diagonals of blocks; on a GPU without storing the
    weights, which are T · S per head."""
    if kernel := kernel_for("cache.line_masses", query, keys, block_size=block_size):
        return kernel.launch(query.contiguous(), keys.contiguous(), scaling, block_size)
    weights = last_weights(query, keys, scaling, block_size)
    return on_columns(weights, block_size), on_block_diagonals(slashes(weights), block_size)


def on_columns(weights: Float[Tensor, "heads R T"], block_size: int) -> Float[Tensor, "heads N"]:
    """Return the mean attention that each block of keys receives from a query. The results sum to 1."""
    return _block_sums(weights.mean(dim=1), block_size)


def slashes(weights: Float[Tensor, "heads R T"]) -> Float[Tensor, "heads T"]:
    """Return the mean attention over queries at each distance δ = query − key. The results sum to 1."""
    n_heads, n_queries, n_tokens = weights.shape
    # Row r is the query T − R + r, so its key at distance δ is R − 1 − r columns before that of the last row.
    # In a view whose rows start one number later than a row ends, all keys at one distance form one column.
    wide = pad(weights, (n_queries - 1, 0))
    width = wide.shape[2]
    aligned = wide.as_strided((n_heads, n_queries, n_tokens), (n_queries * width, width + 1, 1))
    return aligned.mean(dim=1).flip(1)


def on_block_diagonals(slash: Float[Tensor, "heads T"], block_size: int) -> Float[Tensor, "heads N"]:
    """Return the slashes' attention in each diagonal of blocks, i − j = k. The results sum to 1.

    A slash at distance δ = k·S + r passes through two diagonals of blocks: (S − r)/S of it lies in diagonal k, and r/S
    in k + 1.
    """
    distance = torch.arange(slash.shape[1], device=slash.device)
    further = slash * (distance % block_size / block_size)
    nearer, further = _block_sums(slash - further, block_size), _block_sums(further, block_size)
    moved = pad(further, (1, 0))[:, :-1]
    moved[:, -1] += further[:, -1]  # there is no diagonal beyond the last
    return nearer + moved


def where_lines_are(columns: Bool[Tensor, "heads N"], diagonals: Bool[Tensor, "heads N"]) -> Bool[Tensor, "heads N N"]:
    """Return the causal blocks on any of these columns and diagonals of blocks."""
    reads = columns[:, None, :] | diagonals[:, block_distance(columns.shape[1], columns.device).clamp(min=0)]
    return reads & causal_blocks(columns.shape[1], columns.device)


def block_distance(n: int, device: torch.device | str = "cpu") -> Int[Tensor, "N N"]:
    """Return i − j, the number of the diagonal on which each block lies."""
    block = torch.arange(n, device=device)
    return block[:, None] - block


def block_means(vectors: Float[Tensor, "*heads T D"], block_size: int) -> Float[Tensor, "*heads N D"]:
    """Return the mean vector of each block in float32; for a shorter last block, over its own tokens."""
    n_whole = vectors.shape[-2] // block_size * block_size
    means = vectors[..., :n_whole, :].unflatten(-2, (-1, block_size)).mean(dim=-2, dtype=torch.float32)
    ragged = vectors[..., n_whole:, :]
    if not ragged.shape[-2]:
        return means
    return torch.cat([means, ragged.mean(dim=-2, keepdim=True, dtype=torch.float32)], dim=-2)


def _block_sums(values: Float[Tensor, "*rows T"], block_size: int) -> Float[Tensor, "*rows N"]:
    n = n_blocks(values.shape[-1], block_size)
    return pad(values, (0, n * block_size - values.shape[-1])).unflatten(-1, (n, block_size)).sum(dim=-1)
