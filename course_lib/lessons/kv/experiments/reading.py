"""Attention with masked keys, or with only the largest weights of each row.

There is no cache here. All queries are known, later ones as well, so this is an oracle.

Dimension key: B sequences, H key-value heads, G query heads to each, T tokens (of queries and of keys).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model, check_plain, reading_through
from course_lib.lessons.kv.estimates import HEAVIEST, RANDOM, SPARED

NAME = "course_reading_a_part"
Choice = Callable[[Tensor], Tensor]  # weights (B, H, G, T, T) -> a mask of the weights that are read


@contextmanager
def reading(model: PreTrainedModel, choice: Choice) -> Iterator[None]:
    """Let a model read texts without a cache, and keep only the attention weights that `choice` selects.

    The kept weights are rescaled to sum to 1.
    """
    check_model(model)

    def attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **kwargs: Any) -> tuple:
        check_plain(module, kwargs, kwargs.get("dropout", 0.0))
        scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        logits = query.unflatten(1, (key.shape[1], -1)) * scaling @ key[:, :, None].mT  # (B, H, G, T, T)
        logits = logits.masked_fill(~_causal(key.shape[2]), float("-inf"))
        weights = logits.masked_fill(~choice(logits.softmax(dim=-1)), float("-inf")).softmax(dim=-1)
        return (weights @ value[:, :, None]).flatten(1, 2).transpose(1, 2), None

    with reading_through(model, NAME, attention):
        yield


def everything(weights: Float[Tensor, "B H G T T"]) -> Bool[Tensor, "B H G T T"]:
    """Select all weights."""
    return torch.ones_like(weights, dtype=torch.bool)


def largest(share: float) -> Choice:
    """Select the largest weights of each row: this fraction of the tokens that the query can see, at least one."""

    def choice(weights: Float[Tensor, "B H G T T"]) -> Bool[Tensor, "B H G T T"]:
        n_read = (share * torch.arange(1, weights.shape[-1] + 1)).round().clamp(min=1)[:, None]
        best = weights.topk(int(n_read.max()), dim=-1).indices
        is_read = (torch.arange(best.shape[-1]) < n_read).expand(best.shape)
        return torch.zeros_like(weights, dtype=torch.bool).scatter(-1, best, is_read)

    return choice


def without(n: int, which: str, generator: torch.Generator) -> Choice:
    """Mask n tokens of each key-value head for all queries except their own.

    Args:
        which: "heaviest": the tokens that receive the most attention from all queries of the group; "heaviest but the
            first": the same without the first token of the text; "random": random tokens, never the first.
    """
    if which not in (HEAVIEST, SPARED, RANDOM):
        raise ValueError(f"got {which!r}; expected {HEAVIEST!r}, {SPARED!r} or {RANDOM!r}.")

    def choice(weights: Float[Tensor, "B H G T T"]) -> Bool[Tensor, "B H 1 T T"]:
        received = weights.sum(dim=(2, 3))  # (B, H, T)
        rated = torch.rand(received.shape, generator=generator) if which == RANDOM else received
        if which != HEAVIEST:
            rated = rated.clone()
            rated[..., 0] = -1
        masked = torch.zeros_like(received, dtype=torch.bool).scatter(2, rated.topk(n, dim=2).indices, True)
        return ~masked[:, :, None, None, :] | torch.eye(weights.shape[-1], dtype=torch.bool)

    return choice


def _causal(n: int) -> Bool[Tensor, "T T"]:
    return torch.ones(n, n, dtype=torch.bool).tril()
