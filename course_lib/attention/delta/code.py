"""Keys as deltas: a channel keeps its last sent value until the new value differs from it by at least the threshold.

This is our variant of DeltaLLM (Qi and others, 2025, https://arxiv.org/abs/2507.19608), of which we could read only
the abstract: full attention in a local window, and a delta approximation outside. The deltas follow its predecessors,
delta networks (Neil and others, 2016, https://arxiv.org/abs/1612.05571) and the delta keyword transformer (Jelčicová,
Verhelst, 2022, https://arxiv.org/abs/2204.03479). We compare with the last value that was sent, not with the previous
token: so errors stay below the threshold and never add up.

Dimension key: H key-value heads, heads = H * G query heads, Q newest of T tokens, D size of a head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DeltaCode:
    """Approximate keys K̂, and which of their channels were sent. The delta of a channel that was not sent is zero."""

    keys: Float[Tensor, "*rows T D"]
    sent: Bool[Tensor, "*rows T D"]

    @property
    def deltas(self) -> Float[Tensor, "*rows T D"]:
        """d̂_j = K̂_j − K̂_{j−1}, with K̂_{−1} = 0."""
        return torch.cat([self.keys[..., :1, :], self.keys.diff(dim=-2)], dim=-2)


def delta_code(
    keys: Float[Tensor, "*rows T D"],
    threshold: Float[Tensor, "*#rows D"] | float,
    whole: Bool[Tensor, "*#rows T"] | None = None,
    before: DeltaCode | None = None,
) -> DeltaCode:
    """Compute K̂_j = K_j where |K_j − K̂_{j−1}| >= θ, else K̂_{j−1}, per channel: |K − K̂| < θ wherever θ > 0.

    NaN is always sent, and so is the first number after it.

    Args:
        threshold: θ of each channel, in the unit of the keys; with 0 every value is sent.
        whole: tokens of which every channel is sent, such as sinks; the first token always is.
        before: the code of the tokens so far, which these keys continue.

    Raises:
        ValueError: the threshold is below 0, or there are no keys.
    """
    threshold = torch.as_tensor(threshold, dtype=keys.dtype, device=keys.device)
    if not bool((threshold >= 0).all()):
        raise ValueError(f"got thresholds from {threshold.min():.3g} on; expected 0 (all is sent) or more.")
    if not keys.shape[-2]:
        raise ValueError(f"got keys of shape {tuple(keys.shape)}; expected at least one token.")
    last = before.keys[..., -1, :] if before else torch.full_like(keys[..., 0, :], torch.inf)
    approximate, sent = torch.empty_like(keys), torch.empty_like(keys, dtype=torch.bool)
    for j in range(keys.shape[-2]):
        now = ~((keys[..., j, :] - last).abs() < threshold)  # d = K_j − K̂_{j−1}; NaN is not below any threshold
        if whole is not None:
            now = now | whole[..., j, None]
        last = torch.where(now, keys[..., j, :], last)
        approximate[..., j, :], sent[..., j, :] = last, now
    return joined(before, DeltaCode(approximate, sent)) if before else DeltaCode(approximate, sent)


def joined(first: DeltaCode, second: DeltaCode) -> DeltaCode:
    """Concatenate the codes of two parts of a text."""
    pairs = (first.keys, second.keys), (first.sent, second.sent)
    return DeltaCode(*(torch.cat(pair, dim=-2) for pair in pairs))


def delta_logits(
    query: Float[Tensor, "*rows Q D"],
    keys: Float[Tensor, "*rows T D"],
    approximate: Float[Tensor, "*rows T D"],
    window: int,
) -> Float[Tensor, "*rows Q T"]:
    """Return s_ij = q_i·K_j for the `window` tokens up to the query, otherwise q_i·K̂_j. Later tokens are not masked.

    Raises:
        ValueError: the window does not contain the query's own token.
    """
    check_window(window)
    n_new, n_tokens = query.shape[-2], keys.shape[-2]
    at = torch.arange(n_tokens, device=keys.device)
    is_near = at[n_tokens - n_new :, None] - at < window
    return torch.where(is_near, query @ keys.mT, query @ approximate.mT)


def summed_logits(query: Float[Tensor, "*rows Q D"], code: DeltaCode) -> Float[Tensor, "*rows Q T"]:
    """Return s_ij = s_{i,j−1} + q_i·d̂_j, as an implementation would, which skips every channel that is zero in d̂_j.

    It equals q_i·K̂_j, since the sum of the differences is K̂_j.
    """
    return (query @ code.deltas.mT).cumsum(dim=-1)


def n_products(
    sent: Bool[Tensor, "*rows T D"], window: int, n_new: int, first: Int[Tensor, "*#rows"] | None = None
) -> tuple[int, int]:
    """Count multiply-adds of q_i·d̂_j and, in the window, q_i·K_j for the newest `n_new` queries: (done, all causal).

    The sum of query i ends at the last token before its window, so that no token is counted twice. The comparisons of
    the encoder are not counted: there is one per value, not one per query.

    Args:
        first: the first real token of each row; padding before it is not counted.
    """
    check_window(window)
    n_tokens, size = sent.shape[-2:]
    at = torch.arange(n_tokens, device=sent.device)
    first = sent.new_zeros(sent.shape[:-2], dtype=torch.long) if first is None else first.expand(sent.shape[:-2])
    real = at >= first[..., None]  # (*rows, T)
    reach = (sent.sum(dim=-1) * real).cumsum(dim=-1)  # products of a chain up to each token
    query = at[n_tokens - n_new :]
    end = query - window  # the last token outside the window
    far = torch.where(end >= 0, reach[..., end.clamp(min=0)], 0)
    n_near = (query - torch.maximum(end, first[..., None] - 1)).clamp(min=0)
    n_all = (query - first[..., None] + 1).clamp(min=0)
    is_real = real[..., n_tokens - n_new :]
    return int(((far + size * n_near) * is_real).sum()), int((size * n_all * is_real).sum())


def check_window(window: object) -> None:
    """Raise ValueError unless a window contains the query's own token."""
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"got window={window!r}; expected a whole number of tokens, 1 (the query's own) or more.")
