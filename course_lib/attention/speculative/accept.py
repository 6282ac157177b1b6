"""Acceptance of drafted tokens. Leviathan, Kalman, Matias, 2023, https://arxiv.org/abs/2211.17192

We accept a token x drafted from q with probability min(1, p(x) / q(x)). At the first rejection we sample another token
from the residual distribution, (p − q)₊ normalised, and discard the rest of the draft. Since min(p, q) + (p − q)₊ = p,
the text has the distribution of the target model, whatever the draft (appendix A.1).

Dimension key: V tokens of the vocabulary, k drafted tokens.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Chance(Protocol):
    """A source of random choices."""

    def pick(self, weights: Float[Tensor, "n"]) -> int:
        """Return i with probability weights_i; the weights sum to 1."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Choices with a generator on the CPU; None suffices if every choice is certain, as in greedy decoding."""

    generator: torch.Generator | None = None

    def pick(self, weights: Float[Tensor, "n"]) -> int:
        return int(torch.multinomial(weights.cpu(), 1, generator=self.generator))


@dataclass(frozen=True, eq=False)
class Sampling:
    """The distribution of the next token: softmax(logits / temperature); at temperature 0 the most likely token, the
    first one of equals."""

    temperature: float
    chance: Chance

    def distribution(self, logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
        """Return the distribution in float64, so that ratios of small probabilities are accurate.

        Raises:
            ValueError: the logits define no distribution: NaN, +∞, or a row of only −∞.
        """
        if not bool(logits.amax(dim=-1).isfinite().all()):
            raise ValueError(
                f"got logits with {int(logits.isnan().sum())} NaN among {logits.numel()} and a maximum of "
                f"{float(logits.max())}; expected finite ones. Look for NaN in the model's weights, or for an overflow."
            )
        if self.temperature == 0:
            likeliest = logits.argmax(dim=-1, keepdim=True)
            return torch.zeros_like(logits, dtype=torch.float64).scatter(-1, likeliest, 1.0)
        return (logits.double() / self.temperature).softmax(dim=-1)


def overlap(p: Float[Tensor, "*rows V"], q: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows"]:
    """β = Σ_x min(p(x), q(x)): the probability that a token drafted from q is accepted (theorem 3.5)."""
    return torch.minimum(p, q).sum(dim=-1)


def residual(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """(p − q)₊ / Σ (p − q)₊: the distribution of the token that replaces a rejected one."""
    deficit = (p - q).clamp(min=0)
    # If p = q, only rounding can reject a token, and the residual is 0: sample from p.
    return deficit / deficit.sum() if deficit.sum() > 0 else p


def verify(
    drafted: list[int], q: Float[Tensor, "k V"], p: Float[Tensor, "k+1 V"], chance: Chance
) -> tuple[list[int], int]:
    """Return the new tokens of one pass, and how many of them are accepted drafted tokens: all except the last one.

    That one replaces the first rejected one or, if all drafted tokens are accepted, continues the text.

    Args:
        q: the distributions from which the drafted tokens were sampled.
        p: the target model's distributions at the same positions, and at the next one.

    Raises:
        ValueError: a drafted token has probability 0 in its own distribution.
    """
    for i, token in enumerate(drafted):
        if not q[i, token] > 0:
            raise ValueError(
                f"got the drafted token {token} with probability {q[i, token]:.3g} in its own draft; expected more "
                "than 0. Sample each drafted token from the q that the draft reports."
            )
        acceptance = float((p[i, token] / q[i, token]).clamp(max=1))
        if chance.pick(torch.tensor([acceptance, 1 - acceptance], dtype=torch.float64)) == 1:
            return [*drafted[:i], chance.pick(residual(p[i], q[i]))], i
    return [*drafted, chance.pick(p[len(drafted)])], len(drafted)


def expected_tokens(acceptance: float, k: int) -> float:
    """Return (1 − α^{k+1}) / (1 − α): expected tokens per pass if each of k drafted tokens is accepted with probability
    α (equation 1)."""
    _check(acceptance, k)
    return k + 1.0 if acceptance == 1 else (1 - acceptance ** (k + 1)) / (1 - acceptance)


def expected_speedup(acceptance: float, k: int, cost: float) -> float:
    """Return the expected speedup, (1 − α^{k+1}) / ((1 − α) (1 + ck)) (theorem 3.8).

    A pass of the draft costs c passes of the target model, which takes the same time for k + 1 tokens as for one.
    """
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"got cost {cost}; expected the cost of a draft pass relative to a target pass, 0 or more.")
    return expected_tokens(acceptance, k) / (1 + cost * k)


def _check(acceptance: float, k: int) -> None:
    if not 0 <= acceptance <= 1:
        raise ValueError(f"got acceptance {acceptance}; expected a probability, 0 to 1.")
    if k < 1:
        raise ValueError(f"got k={k}; expected to draft 1 token or more.")
