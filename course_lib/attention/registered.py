"""Let a model attend through a function of ours for the time of a `with` block; no class of the model is touched.

Dimension key: B sequences, H key-value heads, heads = H * G query heads, Q new tokens, T tokens so far, D size of a
head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model, check_plain, reading_through


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass:
    """What one layer has of one pass. The Q queries are those of the newest of the T tokens.

    Args:
        keys: as they are in the cache, so behind RoPE where a model has it.
        real: False for padding, which stands on the left.
        position: to which RoPE turned each token; that of padding means nothing.
    """

    layer: int
    query: Float[Tensor, "B heads Q D"]
    keys: Float[Tensor, "B H T D"]
    values: Float[Tensor, "B H T D"]
    real: Bool[Tensor, "B T"]
    position: Int[Tensor, "B T"]
    scaling: float

    @property
    def logits(self) -> Float[Tensor, "B heads Q T"]:
        """scaling · q kᵀ, of later tokens and padding too."""
        group = self.query.shape[1] // self.keys.shape[1]
        return (self.query * self.scaling) @ self.keys.repeat_interleave(group, dim=1).mT

    @property
    def first_real(self) -> Int[Tensor, "B"]:
        """Where the first token stands that is no padding."""
        return self.real.int().argmax(dim=1)

    @property
    def distance(self) -> Int[Tensor, "Q T"]:
        """How many tokens each key lies behind each query; negative where it is later."""
        n_new, n_tokens = self.query.shape[2], self.keys.shape[2]
        at = torch.arange(n_tokens, device=self.keys.device)
        return at[n_tokens - n_new :, None] - at

    @property
    def allowed(self) -> Bool[Tensor, "B Q T"]:
        """What each query may read: real tokens up to its own. Padding reads itself, as nothing would be no number."""
        return ((self.distance >= 0) & self.real[:, None]) | (self.distance == 0)

    def read(self, logits: Float[Tensor, "B heads Q T"]) -> Float[Tensor, "B heads Q D"]:
        """softmax(logits) V over what is allowed; the softmax in float32."""
        logits = logits.masked_fill(~self.allowed[:, None], -torch.inf)
        weights = logits.softmax(dim=-1, dtype=torch.float32).to(self.values.dtype)
        group = logits.shape[1] // self.values.shape[1]
        return weights @ self.values.repeat_interleave(group, dim=1)


Attend = Callable[[Pass], Tensor]  # what is seen -> what the queries read, (B, heads, Q, D)
_inside: dict[int, Attend] = {}  # by the id of a configuration, which lives as long as the block


@contextmanager
def attending(model: PreTrainedModel, name: str, attend: Attend) -> Iterator[None]:
    """Inside, every layer of the model attends through `attend`, cached or not; on exit the model is as before.

    Raises:
        ValueError: for a model that attends through such a function already, or whose layers have windows of their own.
            Inside, for padding that is not on the left, dropout, attention with a softmax of its own, a cache of fixed
            size, and where attention weights are asked for.
    """
    check_model(model)
    with reading_through(model, name, _attention):
        _inside[id(model.config)] = attend
        try:
            yield
        finally:
            del _inside[id(model.config)]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: (B, heads, Q, D) in, (B, Q, heads, D) out."""
    check_plain(module, kwargs, dropout)
    n_rows, n_tokens = key.shape[0], key.shape[2]
    seen = Pass(
        layer=module.layer_idx,
        query=query,
        keys=key,
        values=value,
        real=_real(attention_mask, n_rows, n_tokens, key.device),
        position=_positions(position_ids, n_rows, n_tokens, key.device),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return _inside[id(module.config)](seen).transpose(1, 2).contiguous(), None


def _real(mask: Tensor | None, n_rows: int, n_tokens: int, device: torch.device) -> Bool[Tensor, "B T"]:
    if mask is None:
        return torch.ones(n_rows, n_tokens, dtype=torch.bool, device=device)
    if tuple(mask.shape) != (n_rows, n_tokens):
        raise ValueError(f"got a mask of shape {tuple(mask.shape)}; expected (sequences, tokens) {(n_rows, n_tokens)}.")
    real = mask.bool()
    if not bool(real[:, -1].all()) or bool((real[:, :-1] & ~real[:, 1:]).any()):
        raise ValueError('got padding behind a token; expected it on the left: tokenizer.padding_side = "left".')
    return real


def _positions(given: Tensor | None, n_rows: int, n_tokens: int, device: torch.device) -> Int[Tensor, "B T"]:
    """Those of all tokens, from that of the newest: a text has no gaps."""
    last = torch.full((n_rows, 1), n_tokens - 1, device=device) if given is None else given[:, -1:].expand(n_rows, 1)
    return last - torch.arange(n_tokens - 1, -1, -1, device=device)
