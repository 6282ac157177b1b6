"""H2O with an oracle: heavy hitters chosen from the attention of all queries, including future ones.

The code of Zhang and others, 2023, https://arxiv.org/abs/2306.14048 runs its benchmarks in this way. A cache cannot do
this: when it has to evict a token, it does not know how much attention the token will receive. We use the oracle to
measure how much this knowledge is worth.

Dimension key: B sequences, H key-value heads, G query heads to each, T tokens, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model, check_plain, reading_through
from course_lib.settings import is_real

NAME = "course_h2o_oracle"


@contextmanager
def h2o_oracle(model: PreTrainedModel, heavy: float, recent: float) -> Iterator[None]:
    """Let a model attend only to the tokens that the oracle keeps, in texts that it reads whole and without a cache.

    Args:
        heavy: fraction of the tokens kept as heavy hitters, the same tokens for every query of a key-value head.
        recent: fraction of the tokens kept as the newest ones, counted back from each query.

    Raises:
        ValueError: fractions that are not numbers from 0 to 1 or are both 0; a model that is already in such a block.
    """
    are_numbers = is_real(heavy) and is_real(recent)
    if not are_numbers or not (0 <= heavy <= 1 and 0 <= recent <= 1 and heavy + recent > 0):
        raise ValueError(f"got shares heavy {heavy!r} and recent {recent!r}; expected numbers from 0 to 1, not both 0.")
    check_model(model)

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        check_plain(module, kwargs, kwargs.get("dropout", 0.0))
        if key.shape[2] != query.shape[2]:
            raise ValueError("got a cache; expected whole texts with use_cache=False: the oracle reads the future.")
        if attention_mask is not None and not bool(attention_mask.all()):
            raise ValueError("got padding; expected texts of one length: the oracle's shares are of all tokens.")
        scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        read = attend_with_oracle(query, key, value, scaling, heavy, recent)
        return read.transpose(1, 2), None

    with reading_through(model, NAME, attention):
        yield


def attend_with_oracle(
    query: Float[Tensor, "B heads T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T D"],
    scaling: float,
    heavy: float,
    recent: float,
) -> Float[Tensor, "B heads T D"]:
    """Attend to int(heavy · T) tokens with the largest column sums and to the int(recent · T) newest of each query."""
    n_tokens = key.shape[2]
    logits = query.unflatten(1, (key.shape[1], -1)) * scaling @ key[:, :, None].transpose(3, 4)  # (B, H, G, T, T)
    places = torch.arange(n_tokens, device=key.device)
    causal = places <= places[:, None]
    logits = logits.float().masked_fill(~causal, float("-inf"))
    keep = heavy_hitters(logits.softmax(dim=-1), int(heavy * n_tokens))[:, :, None, None, :]
    near = places > places[:, None] - max(1, int(recent * n_tokens))  # a token always reads itself
    weights = logits.masked_fill(~(keep | near), float("-inf")).softmax(dim=-1)
    return (weights.to(value.dtype) @ value[:, :, None]).flatten(1, 2)


def heavy_hitters(weights: Float[Tensor, "B H G T T"], n: int) -> Bool[Tensor, "B H T"]:
    """Choose for each key-value head the n tokens with the most attention, summed over all queries of its group."""
    received = weights.sum(dim=(2, 3))
    return torch.zeros_like(received, dtype=torch.bool).scatter_(2, received.topk(n, dim=2).indices, True)
