"""Functions shared by routers: exact top-k, expert capacity, random choices, and gradients of a random choice.

Dimension key: T tokens, E experts.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def highest(score: Float[Tensor, "T E"], k: int) -> Int[Tensor, "T k"]:
    """Return the k best experts of each token, always exactly k: of equal scores the lower index comes first."""
    return score.sort(dim=1, descending=True, stable=True).indices[:, :k]


def among(indices: Int[Tensor, "T k"], n_experts: int) -> Bool[Tensor, "T E"]:
    """Turn indices into a mask."""
    return torch.zeros(len(indices), n_experts, dtype=torch.bool, device=indices.device).scatter_(1, indices, True)


def sigmoid_shares(
    logits: Float[Tensor, "T E"], keep: Bool[Tensor, "T E"], scaling: float = 1.0
) -> Float[Tensor, "T E"]:
    """Return scaling · σ(h) over the sum of each row. If σ underflows, use σ_i / Σ σ_j = softmax(log σ)_i."""
    score = logits.sigmoid().where(keep, 0)
    total = score.sum(1, keepdim=True)
    is_tiny = total < 1e-12
    by_logarithm = F.logsigmoid(logits).masked_fill(~keep, float("-inf")).softmax(1)
    return torch.where(is_tiny, scaling * by_logarithm, scaling * score / total.where(~is_tiny, 1))


def admitted(wishes: Sequence[Bool[Tensor, "T E"]], capacity: int) -> Bool[Tensor, "T E"]:
    """Return the choices within capacity: first choices in the order of the tokens, then second choices."""
    keep, taken = torch.zeros_like(wishes[0]), 0
    for wish in wishes:
        place = wish.cumsum(0) + taken  # (T, E), counted from 1
        keep |= wish & (place <= capacity)
        taken = place[-1]
    return keep


def near_best(logits: Float[Tensor, "T E"], eps: float) -> Bool[Tensor, "T E"]:
    """Return which experts can be sampled: those with (max − h) / max(|h|, max) ≤ 2 ε, but never minus infinity."""
    best = logits.detach().amax(dim=1, keepdim=True)
    distance = (best - logits.detach()) / logits.detach().abs().clamp(min=best)
    return ~(distance > 2 * eps) & logits.isfinite()  # 0 / 0, if all logits are zero, counts as near


def draw(logits: Float[Tensor, "T E"], generator: torch.Generator | None) -> Int[Tensor, "T 1"]:
    """Sample one expert per token from softmax(logits) with Gumbel noise; without generator, return the most likely."""
    logits = logits.detach()
    if generator is None:
        return logits.argmax(dim=1, keepdim=True)
    gumbel = -torch.empty_like(logits).exponential_(generator=generator).log()
    return (logits + gumbel).argmax(dim=1, keepdim=True)


def factor_of(
    drawn: Int[Tensor, "T 1"], logits: Float[Tensor, "T E"], low: float, often: float, generator: torch.Generator
) -> Float[Tensor, "T 1"]:
    """Return `low` with probability `often`, otherwise 1; always 1 if the most likely expert was sampled."""
    shortened = torch.empty(drawn.shape, device=logits.device).uniform_(generator=generator) < often
    shortened &= drawn != logits.detach().argmax(dim=1, keepdim=True)
    return torch.where(shortened, logits.new_tensor(low), 1.0)  # 1/3 in the type of the logits, not in float32


class _Scaled(torch.autograd.Function):
    """value x factor, whose gradient is slope x g for every factor."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: Tensor, factor: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        return value * factor

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.slope * grad, None, None


def scaled(value: Float[Tensor, "T 1"], factor: Float[Tensor, "T 1"], slope: float) -> Float[Tensor, "T 1"]:
    """Return the experts' multiplier, value x factor, whose gradient is scaled by `slope` instead of `factor`."""
    return _Scaled.apply(value, factor, slope)
