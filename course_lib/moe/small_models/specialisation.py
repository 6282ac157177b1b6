"""Measure how well a byte predicts its expert.

Dimension key: T tokens, E experts, V values of a byte.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def counted(ids: Int[Tensor, "T"], chosen: Bool[Tensor, "rows E"], n_values: int = 256) -> Int[Tensor, "V E"]:
    """Count how often each byte is sent to each expert; all of its choices count.

    Raises:
        ValueError: the numbers of bytes and of rows differ.
    """
    if ids.shape != chosen.shape[:1]:
        raise ValueError(f"got {tuple(ids.shape)} bytes and {len(chosen)} rows of choices; expected one row for each.")
    return torch.zeros(n_values, chosen.shape[1], dtype=torch.long).index_add_(0, ids, chosen.long())


def entropy(counts: Int[Tensor, "*n"]) -> float:
    """Return the entropy of the distribution of these counts, in nats."""
    share = counts.double().flatten() / counts.sum()
    return -torch.xlogy(share, share).sum().item()


def known_share(counts: Int[Tensor, "V E"]) -> float:
    """Return I(byte; expert) / H(expert): 1 if the byte determines the expert, 0 if both are independent.

    With few tokens the result is too large, so compare it with shuffled bytes. With a single expert the result is 0.
    """
    of_experts = entropy(counts.sum(0))
    information = entropy(counts.sum(1)) + of_experts - entropy(counts)
    return information / of_experts if of_experts > 0 else 0.0


def by_chance(ids: Int[Tensor, "T"], chosen: Bool[Tensor, "T E"], seed: int = 0) -> float:
    """Return the result of `known_share` for the same bytes in random order: the bias from few tokens."""
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
    return known_share(counted(ids[order], chosen))
