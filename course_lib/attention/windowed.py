"""Attention with a window and sinks in one pass over a text, and the effect of the first token: for analysis only.

With a band mask, every token attends to what a cache of the newest `window` tokens would contain, because keys and
values are computed from such attention too. All attention weights of a layer are in memory at once.

Dimension key: B sequences, L layers, H query heads, K key-value heads, T tokens, D size of a head.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model, check_plain, reading_through
from course_lib.attention.sink_softmax import sink_softmax
from course_lib.models import blocks, check_tokens, heads
from course_lib.settings import check_count

NAME = "course_bands"
# (layer, logits (B, H, T, T), values (B, H, T, D)) -> the output of attention, (B, H, T, D)
Reader = Callable[[int, Tensor, Tensor], Tensor]
_reader: ContextVar[Reader | None] = ContextVar("what turns logits and values into output", default=None)


@dataclass(frozen=True)
class Constant:
    """A term that a head adds to every denominator, exp(logit), and the value that gets this fraction of attention.

    A first token that is the same for every text has exactly this effect.
    """

    logit: Float[Tensor, "L H"]
    value: Float[Tensor, "L H D"]


@contextmanager
def windowed(
    model: PreTrainedModel, window: int | None = None, sinks: int = 0, constant: Constant | None = None
) -> Iterator[None]:
    """Let each token attend to the newest `window` tokens, including itself, and to the first `sinks`, in the block.

    Args:
        window: None for all tokens.
        constant: takes part in every softmax as one more token, or, with a value of zeros, as a sink without a value.

    Raises:
        ValueError: the window has no token, the constant is of another model, or the attention of the model is not just
            a softmax over all earlier tokens.
    """
    if window is not None:
        check_count("window", window, unit="tokens (None for all)")
    check_count("sinks", sinks, unit="tokens", least=0)
    shape = (len(blocks(model)), heads(model).n_query)
    if constant is not None and not isinstance(constant, Constant):
        raise ValueError(f"got constant {constant!r}; expected a Constant, such as first_token(model, ids), or None.")
    if constant is not None and tuple(constant.logit.shape) != shape:
        raise ValueError(f"got logits of shape {tuple(constant.logit.shape)}; expected (layers, heads) = {shape}.")

    def read(layer: int, logits: Tensor, values: Tensor) -> Tensor:
        logits = logits.masked_fill(~band(logits.shape[-1], window, sinks).to(logits.device), -math.inf)
        if constant is None:
            return logits.softmax(dim=-1) @ values
        weights = sink_softmax(logits, constant.logit[layer])
        return weights @ values + (1 - weights.sum(dim=-1, keepdim=True)) * constant.value[layer][:, None]

    with _reading(model, read):
        yield


def band(n_tokens: int, window: int | None, sinks: int) -> Bool[Tensor, "T T"]:
    """Return which tokens (columns) each token (row) attends to."""
    query, key = torch.arange(n_tokens)[:, None], torch.arange(n_tokens)
    near = key > query - (n_tokens if window is None else window)
    return (key <= query) & (near | (key < sinks))


@torch.no_grad()
def attention_weights(model: PreTrainedModel, ids: Int[Tensor, "B T"]) -> Float[Tensor, "L H T T"]:
    """Return the full attention weights of every layer and head, mean over sequences."""
    return _collected(model, ids, lambda logits, values: logits.softmax(dim=-1).mean(dim=0))


@torch.no_grad()
def attention_logits(model: PreTrainedModel, ids: Int[Tensor, "1 T"]) -> Float[Tensor, "L H T T"]:
    """Return the input of the softmax of every layer and head for one text; −∞ for later tokens."""
    return _collected(model, ids, lambda logits, values: logits[0])


def received_share(weights: Float[Tensor, "L H T T"], start: int) -> Float[Tensor, "L H T"]:
    """Return the mean weight that each token receives from the queries from `start` on that can attend to it."""
    sees = band(weights.shape[3], None, 0).to(weights.device)[start:]
    return (weights.narrow(2, start, len(sees)) * sees).sum(2) / sees.sum(0)


@torch.no_grad()
def value_lengths(model: PreTrainedModel, ids: Int[Tensor, "B T"]) -> Float[Tensor, "L T"]:
    """Return the norm of each token's values per layer, mean over heads and sequences."""
    return _collected(model, ids, lambda logits, values: values.norm(dim=-1).mean(dim=(0, 1)))


@torch.no_grad()
def first_token(model: PreTrainedModel, ids: Int[Tensor, "B T"], start: int = 64) -> Constant:
    """Return the mean logit of the queries from `start` on with the first token, and its value."""
    both = _collected(
        model,
        ids,
        lambda logits, values: torch.cat(
            [logits[:, :, start:, 0].mean(dim=(0, 2))[:, None], values[:, :, 0].mean(dim=0)], dim=1
        ),
    )
    return Constant(both[..., 0], both[..., 1:])


def _collected(model: PreTrainedModel, ids: Int[Tensor, "B T"], look: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the results of `look` for the logits and values of each layer, (L, ...)."""
    check_tokens(model, ids, "texts")
    by_layer: list[Tensor] = []

    def read(layer: int, logits: Tensor, values: Tensor) -> Tensor:
        logits = logits.masked_fill(~band(logits.shape[-1], None, 0).to(logits.device), -math.inf)
        by_layer.append(look(logits, values).float().cpu())
        return logits.softmax(dim=-1) @ values

    with _reading(model, read):
        model(ids.to(model.device), use_cache=False)
    return torch.stack(by_layer)


@contextmanager
def _reading(model: PreTrainedModel, read: Reader) -> Iterator[None]:
    check_model(model)
    with reading_through(model, NAME, _attention):
        token = _reader.set(read)
        try:
            yield
        finally:
            _reader.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: object = None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Compute attention in each layer for transformers: (B, heads, T, D) in, (B, T, heads, D) out."""
    check_plain(module, kwargs, kwargs.get("dropout", 0.0))
    group, scaling = query.shape[1] // key.shape[1], kwargs.get("scaling") or query.shape[-1] ** -0.5
    if query.shape[2] != key.shape[2] or (isinstance(attention_mask, Tensor) and not attention_mask.all()):
        raise ValueError("got a cache or padding; expected whole texts of one length: model(ids, use_cache=False).")
    logits = (query * scaling) @ key.repeat_interleave(group, dim=1).transpose(2, 3)
    output = _reader.get()(module.layer_idx, logits, value.repeat_interleave(group, dim=1))
    return output.transpose(1, 2).contiguous(), None
