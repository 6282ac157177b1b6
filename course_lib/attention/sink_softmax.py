"""Attention sinks inside the softmax: an extra logit takes part of the attention weight and contributes no value.

The weights of a softmax sum to one even where no key is relevant to the query. A trained model then puts the surplus on
the first token, the **attention sink**. An explicit sink with logit s takes the surplus instead:

    p_i = exp(x_i) / (exp(s) + Σ_j exp(x_j))

    s = −∞               the ordinary softmax (vanilla)
    s = 0                softmax-off-by-one (Miller, 2023), the zero sink of StreamingLLM (Xiao and others, 2023): the
                         same as one more key with logit 0 and value 0
    s learned, one       gpt-oss (OpenAI, 2025, https://arxiv.org/abs/2508.10925)
      per query head

Miller: https://www.evanmiller.org/attention-is-off-by-one.html. StreamingLLM: https://arxiv.org/abs/2309.17453.

With the log-sum-exp lse = log Σ_j exp(x_j), the weights are softmax(x) times exp(lse) / (exp(s) + exp(lse)), which is
σ(lse − s). So any attention implementation that returns its log-sum-exp supports sinks: multiply its output by
σ(lse − s), as `with_sink` does.

Dimension key: B sequences, H query heads, K key-value heads, Q queries, N keys, D head dimension.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Sink = float | int | Tensor | None
CHUNK = 2**21  # number of logits in memory at a time


def sink_softmax(logits: Float[Tensor, "... N"], sink: Sink = None) -> Float[Tensor, "... N"]:
    """Softmax over the last axis and a sink, whose own weight is not returned: with a sink, a row sums to less than 1.

    Args:
        logits: (..., N); (B, H, Q, N) if the sink is one number per head. A logit of −∞ gets weight 0.
        sink: None or −∞ for the ordinary softmax, 0 for softmax-off-by-one, a tensor (H) for one logit per query head.

    For a row of only −∞, the weights and gradients are zero with a sink. Without one they are NaN, as in torch.softmax,
    because no key can take the weight. Half precision is computed in float32.

    Raises:
        ValueError: the sink is +∞ or NaN, or a tensor that does not have one number per head of the logits.
    """
    sink = _a_head(sink, logits.shape[:-1], "logits", logits)
    x = logits.to(sink.dtype)
    # Subtract the largest logit, sink included: no exponential overflows, and the denominator is at least 1.
    largest = x.detach().amax(dim=-1, keepdim=True).maximum(sink.detach())
    exponentials = (x - largest).exp()
    total = exponentials.sum(dim=-1, keepdim=True) + (sink - largest).exp()
    return (exponentials / total).to(logits.dtype)


def with_sink(
    output: Float[Tensor, "... Q D"], lse: Float[Tensor, "... Q"], sink: Sink = None
) -> Float[Tensor, "... Q D"]:
    """Turn the output of attention without a sink into the output with one: output · σ(lse − sink).

    Args:
        output: (B, H, Q, D), from any attention implementation.
        lse: log Σ exp of the scaled logits of each query; −∞ for a query that may not attend to any key.
        sink: as for `sink_softmax`.

    Where lse is −∞, the output (usually NaN) becomes 0 with a sink and is unchanged without one.
    """
    sink = _a_head(sink, lse.shape, "a log-sum-exp", lse)[..., 0]
    vanilla = sink.isneginf()
    has_no_key = lse.isneginf() & ~vanilla
    factor = torch.where(vanilla, 1.0, (lse - sink).sigmoid()).to(output.dtype)
    return output.masked_fill(has_no_key[..., None], 0.0) * factor[..., None]


def sink_attention(
    query: Float[Tensor, "B H Q D"],
    keys: Float[Tensor, "B K N D"],
    values: Float[Tensor, "B K N D"],
    sink: Sink = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "B H Q D"]:
    """torch's attention with a sink, for grouped heads too. It never stores (Q, N) weights; gradients reach `sink`.

    Causal attention requires a whole sequence, Q = N. Cost: the logits are computed twice, because torch's attention
    does not return its log-sum-exp. With a backend that returns it, `with_sink` is enough.
    """
    if query.shape[1] % keys.shape[1] or (is_causal and query.shape[2] != keys.shape[2]):
        raise ValueError(
            f"got queries {tuple(query.shape)} and keys {tuple(keys.shape)}, is_causal={is_causal}; expected a whole "
            "number of query heads per key-value head, and as many queries as keys if attention is causal."
        )
    output = scaled_dot_product_attention(query, keys, values, is_causal=is_causal, scale=scale, enable_gqa=True)
    return with_sink(output, log_sum_exp(query, keys, is_causal, scale), sink)


def log_sum_exp(
    query: Float[Tensor, "B H Q D"], keys: Float[Tensor, "B K N D"], is_causal: bool = False, scale: float | None = None
) -> Float[Tensor, "B H Q"]:
    """Compute log Σ exp of each query's scaled logits, in chunks of queries."""
    n_heads, n_queries = query.shape[1:3]
    n_keys = keys.shape[2]
    keys = keys.repeat_interleave(n_heads // keys.shape[1], dim=1)
    scale = query.shape[3] ** -0.5 if scale is None else scale
    size = max(1, CHUNK // (query.shape[0] * n_heads * n_keys))
    chunks = []
    for start in range(0, n_queries, size):
        logits = (query[:, :, start : start + size] * scale) @ keys.transpose(2, 3)
        if is_causal:
            is_later = torch.ones(logits.shape[2:], dtype=torch.bool, device=logits.device).triu(start + 1)
            logits = logits.masked_fill(is_later, -math.inf)
        chunks.append(logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(dim=-1))
    return torch.cat(chunks, dim=2)


def _a_head(sink: Sink, shape: torch.Size, what: str, like: Tensor) -> Tensor:
    """Return the sink in float32 or a finer type, in a shape that broadcasts to (..., H, Q, 1)."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    if not isinstance(sink, Tensor):
        sink = -math.inf if sink is None else sink
        if math.isnan(sink) or sink == math.inf:
            raise ValueError(
                f"got a sink of {sink}; expected a number, None or -inf for the ordinary softmax, or a tensor with one "
                "number per query head."
            )
        return torch.full((1,), sink, dtype=dtype, device=like.device)
    if sink.ndim == 0:
        return sink[None].to(dtype)
    if sink.ndim != 1 or len(shape) < 2 or len(sink) != shape[-2]:
        raise ValueError(
            f"got a sink of shape {tuple(sink.shape)} for {what} of (..., heads, queries) = {tuple(shape)}; expected "
            "one number per query head: pass logits (B, H, Q, N) and a sink of shape (H,)."
        )
    return sink[:, None, None].to(dtype)
