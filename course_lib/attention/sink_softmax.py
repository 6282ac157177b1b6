"""Attention sinks inside the softmax: one more logit takes a share of the attention, and nobody reads it.

Softmax must give all of its weight away, also where a query has nothing to look for; a trained model then gives it to
the first token. Give the weight somewhere else to go:

    p_i = exp(x_i) / (exp(s) + Σ_j exp(x_j))

    s = −∞               softmax as always (vanilla)
    s = 0                softmax-off-by-one (Miller, 2023), the zero sink of StreamingLLM (Xiao and others, 2023): the
                         same as one more key whose logit is 0 and whose value is 0
    s learned, one       gpt-oss (OpenAI, 2025, https://arxiv.org/abs/2508.10925)
      a query head

Miller: https://www.evanmiller.org/attention-is-off-by-one.html. StreamingLLM: https://arxiv.org/abs/2309.17453.

Since Σ_j exp(x_j) = exp(lse), the weights are softmax(x) times exp(lse) / (exp(s) + exp(lse)) = σ(lse − s). So whatever
computes attention and returns its log-sum-exp has sinks for one multiplication of its output: `with_sink`.

Dimension key: B sequences, H query heads, K key-value heads, Q queries, N keys, D size of a head.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Sink = float | int | Tensor | None
CHUNK = 2**21  # logits in memory at once


def sink_softmax(logits: Float[Tensor, "... N"], sink: Sink = None) -> Float[Tensor, "... N"]:
    """Softmax over the last axis, beside a sink that takes its share and is left out.

    Args:
        logits: (N), or with any axes before; (B, H, Q, N) where the sink is one number a head. −∞ is never read.
        sink: None or −∞ for softmax as always, 0 for softmax-off-by-one, a tensor (H) for one number a query head.

    A row of −∞ alone gives zeros and zero gradients with a sink. Without one there is nothing to give the weight to:
    NaN, as torch.softmax has it. Half precision is computed in float32.

    Raises:
        ValueError: a sink of +∞ or NaN, or a tensor that is not one number a head of the logits.
    """
    sink = _a_head(sink, logits.shape[:-1], "logits", logits)
    x = logits.to(sink.dtype)
    # The largest of all, the sink among them, becomes exp(0): no overflow, and the denominator is at least 1.
    largest = x.detach().amax(dim=-1, keepdim=True).maximum(sink.detach())
    shares = (x - largest).exp()
    total = shares.sum(dim=-1, keepdim=True) + (sink - largest).exp()
    return (shares / total).to(logits.dtype)


def with_sink(
    output: Float[Tensor, "... Q D"], lse: Float[Tensor, "... Q"], sink: Sink = None
) -> Float[Tensor, "... Q D"]:
    """The output of attention with a sink, from that without: output · σ(lse − sink).

    Args:
        output: (B, H, Q, D), what any attention reads.
        lse: its log-sum-exp: log Σ exp of the scaled logits of each query, −∞ where it may read nothing.
        sink: as for `sink_softmax`.

    Where lse is −∞ the output, NaN as a rule, becomes 0 with a sink and stays as it is without.
    """
    sink = _a_head(sink, lse.shape, "a log-sum-exp", lse)[..., 0]
    vanilla = sink.isneginf()
    nothing = lse.isneginf() & ~vanilla
    share = torch.where(vanilla, 1.0, (lse - sink).sigmoid()).to(output.dtype)
    return output.masked_fill(nothing[..., None], 0.0) * share[..., None]


def sink_attention(
    query: Float[Tensor, "B H Q D"],
    keys: Float[Tensor, "B K N D"],
    values: Float[Tensor, "B K N D"],
    sink: Sink = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "B H Q D"]:
    """torch's attention with a sink, no (Q, N) weights kept. Grouped heads; gradients reach the sink as well.

    Causal attention is for a whole sequence, Q = N. Cost: the logits are computed twice, since torch's attention keeps
    its log-sum-exp to itself (a backend that returns it needs `with_sink` alone).
    """
    if query.shape[1] % keys.shape[1] or (is_causal and query.shape[2] != keys.shape[2]):
        raise ValueError(
            f"got queries {tuple(query.shape)} and keys {tuple(keys.shape)}, is_causal={is_causal}; expected a whole "
            "number of query heads a key-value head, and as many queries as keys where attention is causal."
        )
    read = scaled_dot_product_attention(query, keys, values, is_causal=is_causal, scale=scale, enable_gqa=True)
    return with_sink(read, log_sum_exp(query, keys, is_causal, scale), sink)


def log_sum_exp(
    query: Float[Tensor, "B H Q D"], keys: Float[Tensor, "B K N D"], is_causal: bool = False, scale: float | None = None
) -> Float[Tensor, "B H Q"]:
    """log Σ exp of each query's scaled logits, some queries at a time."""
    n_heads, n_queries = query.shape[1:3]
    n_keys = keys.shape[2]
    keys = keys.repeat_interleave(n_heads // keys.shape[1], dim=1)
    scale = query.shape[3] ** -0.5 if scale is None else scale
    size = max(1, CHUNK // (query.shape[0] * n_heads * n_keys))
    chunks = []
    for start in range(0, n_queries, size):
        logits = (query[:, :, start : start + size] * scale) @ keys.transpose(2, 3)
        if is_causal:
            later = torch.ones(logits.shape[2:], dtype=torch.bool, device=logits.device).triu(start + 1)
            logits = logits.masked_fill(later, -math.inf)
        chunks.append(logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(dim=-1))
    return torch.cat(chunks, dim=2)


def _a_head(sink: Sink, shape: torch.Size, what: str, like: Tensor) -> Tensor:
    """The sink as a tensor that goes with (..., H, Q, 1), in float32 or what is finer."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    if not isinstance(sink, Tensor):
        sink = -math.inf if sink is None else sink
        if math.isnan(sink) or sink == math.inf:
            raise ValueError(
                f"got a sink of {sink}; expected a number, None or -inf for softmax as always, or a tensor of one "
                "number a query head."
            )
        return torch.full((1,), sink, dtype=dtype, device=like.device)
    if sink.ndim == 0:
        return sink[None].to(dtype)
    if sink.ndim != 1 or len(shape) < 2 or len(sink) != shape[-2]:
        raise ValueError(
            f"got a sink of shape {tuple(sink.shape)} for {what} of (..., heads, queries) = {tuple(shape)}; expected "
            "one number a query head: give logits (B, H, Q, N) and a sink of shape (H,)."
        )
    return sink[:, None, None].to(dtype)
