"""The library's side of four exercises of lesson 11, which the notebook uses until the student's function is right.

Dimension key: T tokens in N blocks of S; H heads, Q newest of T tokens, P tokens of the prompt; N visual tokens of D
channels, P pixels of a patch, C cells; k drafted tokens, V tokens of the vocabulary.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention.prefill.index import always_read, n_blocks
from course_lib.attention.prefill.lines import where_lines_are
from course_lib.attention.speculative.accept import residual
from course_lib.attention.steering.steer import steered


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


def stays_and_next(
    drafted: Int[Tensor, "k"], q: Float[Tensor, "k V"], p: Float[Tensor, "k+1 V"], luck: Float[Tensor, "k"]
) -> tuple[int, Float[Tensor, "V"]]:
    """Return how many of the drafted tokens are accepted, and the distribution of the next token.

    Token i is accepted if luck_i < min(1, p_i(x) / q_i(x)); after the first rejection the next token is sampled from
    (p − q)₊ / Σ (p − q)₊. `attention/speculative/accept.verify` uses a generator instead.
    """
    if len(p) != len(drafted) + 1:
        raise ValueError(f"got {len(p)} distributions of the model for {len(drafted)} tokens; expected one more.")
    for i, token in enumerate(drafted.tolist()):
        if not luck[i] < p[i, token] / q[i, token]:
            return i, residual(p[i], q[i])
    return len(drafted), p[-1]


def steered_weights(
    logits: Float[Tensor, "H Q T"], highlighted: Bool[Tensor, "P"], chosen: Bool[Tensor, "H"], alpha: float
) -> Float[Tensor, "H Q T"]:
    """softmax(l + log α) over the prompt's columns that are not highlighted, the first spared, in chosen heads."""
    if logits.shape[-1] < len(highlighted):
        raise ValueError(
            f"got logits of {logits.shape[-1]} keys; expected the {len(highlighted)} of the prompt at least."
        )
    lowered = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    lowered[1 : len(highlighted)] = ~highlighted[1:]
    return steered(logits, lowered & chosen[:, None, None], alpha).softmax(dim=-1)


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
