"""Which of the drafted tokens stay. Leviathan, Kalman, Matias, 2023, https://arxiv.org/abs/2211.17192

A token x drafted from q stays with probability min(1, p(x) / q(x)). Where one falls, another is drawn from what q gave
too little of, (p − q)₊, and the rest of the draft is forgotten. min(p, q) and (p − q)₊ add up to p: whatever the draft,
the text is distributed as the model's own (appendix A.1).

Dimension key: V words of the vocabulary, k drafted tokens.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Chance(Protocol):
    """Where randomness comes from."""

    def pick(self, weights: Float[Tensor, "n"]) -> int:
        """i with probability weights_i; they sum to 1."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Randomness of a generator of the CPU; None where every choice is certain, as in greedy decoding."""

    generator: torch.Generator | None = None

    def pick(self, weights: Float[Tensor, "n"]) -> int:
        return int(torch.multinomial(weights.cpu(), 1, generator=self.generator))


@dataclass(frozen=True, eq=False)
class Sampling:
    """How tokens are drawn from logits: softmax(logits / temperature); at temperature 0 the likeliest, the first of
    equals."""

    temperature: float
    chance: Chance

    def distribution(self, logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
        """In float64, so that ratios of small probabilities mean something.

        Raises:
            ValueError: for logits without a distribution: NaN, +infinity, or −infinity alone.
        """
        if not bool(logits.amax(dim=-1).isfinite().all()):
            raise ValueError(
                f"got logits of which {int(logits.isnan().sum())} of {logits.numel()} are NaN and whose largest is "
                f"{float(logits.max())}; expected finite ones. Look for NaN in the model's weights, or for an overflow."
            )
        if self.temperature == 0:
            likeliest = logits.argmax(dim=-1, keepdim=True)
            return torch.zeros_like(logits, dtype=torch.float64).scatter(-1, likeliest, 1.0)
        return (logits.double() / self.temperature).softmax(dim=-1)


def overlap(p: Float[Tensor, "*rows V"], q: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows"]:
    """β = Σ_x min(p(x), q(x)): how probable it is that a token drawn from q stays (theorem 3.5)."""
    return torch.minimum(p, q).sum(dim=-1)


def residual(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """(p − q)₊ / Σ (p − q)₊: where a token comes from when the drafted one fell."""
    missing = (p - q).clamp(min=0)
    # Equal distributions let nothing fall, but for rounding.
    return missing / missing.sum() if missing.sum() > 0 else p


def verify(
    drafted: list[int], q: Float[Tensor, "k V"], p: Float[Tensor, "k+1 V"], chance: Chance
) -> tuple[list[int], int]:
    """The tokens of one pass, and how many of them were drafted: always one more than that.

    Args:
        q: of which each drafted token was drawn.
        p: the model's distributions at the same places, and at the one behind them.

    Raises:
        ValueError: a drafted token that its own distribution excludes.
    """
    for i, token in enumerate(drafted):
        if not q[i, token] > 0:
            raise ValueError(f"got the drafted token {token}, of probability {q[i, token]:.3g} in its own draft.")
        stays = float((p[i, token] / q[i, token]).clamp(max=1))
        if chance.pick(torch.tensor([stays, 1 - stays], dtype=torch.float64)) == 1:
            return [*drafted[:i], chance.pick(residual(p[i], q[i]))], i
    return [*drafted, chance.pick(p[len(drafted)])], len(drafted)


def expected_tokens(acceptance: float, k: int) -> float:
    """(1 − α^{k+1}) / (1 − α): tokens a pass where each of k drafted ones stays with probability α (equation 1)."""
    _check(acceptance, k)
    return k + 1.0 if acceptance == 1 else (1 - acceptance ** (k + 1)) / (1 - acceptance)


def expected_speedup(acceptance: float, k: int, cost: float) -> float:
    """That over 1 + ck, for a draft whose pass costs c of the model's, and a pass that costs the same for k + 1 tokens
    as for one (theorem 3.8)."""
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"got cost {cost}; expected that of a pass of the draft, as a share of the model's.")
    return expected_tokens(acceptance, k) / (1 + cost * k)


def _check(acceptance: float, k: int) -> None:
    if not 0 <= acceptance <= 1:
        raise ValueError(f"got acceptance {acceptance}; expected a probability, 0 to 1.")
    if k < 1:
        raise ValueError(f"got k={k}; expected to draft 1 token or more.")
