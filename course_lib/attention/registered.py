"""Make a model attend through a function of ours inside a `with` block, without changing any of its classes.

Dimension key: B sequences, H key-value heads, heads = H * G query heads, Q new tokens, T tokens so far, D head
dimension.
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
    """The attention inputs of one layer in one forward pass. The Q queries belong to the newest of the T tokens.

    Args:
        keys: as in the cache, that is, after RoPE in models that use it.
        real: False for padding, which is always on the left.
        position: the position at which RoPE rotated each token; meaningless for padding.
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
        """scaling · q kᵀ for all T keys; later tokens and padding are not masked yet."""
        group = self.query.shape[1] // self.keys.shape[1]
        return (self.query * self.scaling) @ self.keys.repeat_interleave(group, dim=1).mT

    @property
    def first_real(self) -> Int[Tensor, "B"]:
        """Index of the first token that is not padding."""
        return self.real.int().argmax(dim=1)

    @property
    def distance(self) -> Int[Tensor, "Q T"]:
        """Number of tokens from each key to each query; negative for keys after the query."""
        n_new, n_tokens = self.query.shape[2], self.keys.shape[2]
        token_index = torch.arange(n_tokens, device=self.keys.device)
        return token_index[n_tokens - n_new :, None] - token_index

    @property
    def allowed(self) -> Bool[Tensor, "B Q T"]:
        """The keys each query may attend to: real tokens up to its own; padding attends to itself to avoid NaN."""
        return ((self.distance >= 0) & self.real[:, None]) | (self.distance == 0)

    def read(self, logits: Float[Tensor, "B heads Q T"]) -> Float[Tensor, "B heads Q D"]:
        """Return softmax(logits) V over the allowed keys; the softmax is computed in float32."""
        logits = logits.masked_fill(~self.allowed[:, None], -torch.inf)
        weights = logits.softmax(dim=-1, dtype=torch.float32).to(self.values.dtype)
        group = logits.shape[1] // self.values.shape[1]
        return weights @ self.values.repeat_interleave(group, dim=1)


Attend = Callable[[Pass], Tensor]  # the inputs of one layer -> the attention outputs of its queries, (B, heads, Q, D)
_inside: dict[int, Attend] = {}  # by the id of the model's configuration, which exists as long as the `with` block


@contextmanager
def attending(model: PreTrainedModel, name: str, attend: Attend) -> Iterator[None]:
    """Inside the `with` block, all layers attend through `attend`, with a cache or without; then all is as before.

    Raises:
        ValueError: the model already attends through such a function, or its layers use sliding windows. Inside:
            padding that is not on the left, dropout, attention with a modified softmax, a cache of fixed size, or a
            call that requests attention weights.
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
    """The function that transformers calls in each layer: (B, heads, Q, D) in, (B, Q, heads, D) out."""
    check_plain(module, kwargs, dropout)
    n_rows, n_tokens = key.shape[0], key.shape[2]
    one_pass = Pass(
        layer=module.layer_idx,
        query=query,
        keys=key,
        values=value,
        real=_real(attention_mask, n_rows, n_tokens, key.device),
        position=_positions(position_ids, n_rows, n_tokens, key.device),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return _inside[id(module.config)](one_pass).transpose(1, 2).contiguous(), None


def _real(mask: Tensor | None, n_rows: int, n_tokens: int, device: torch.device) -> Bool[Tensor, "B T"]:
    """Turn the mask of a call into True for tokens; raise ValueError for padding that is not on the left."""
    if mask is None:
        return torch.ones(n_rows, n_tokens, dtype=torch.bool, device=device)
    if tuple(mask.shape) != (n_rows, n_tokens):
        raise ValueError(f"got a mask of shape {tuple(mask.shape)}; expected (sequences, tokens) {(n_rows, n_tokens)}.")
    real = mask.bool()
    # With padding on the left, the last token is real, and padding never follows a real token.
    if not bool(real[:, -1].all()) or bool((real[:, :-1] & ~real[:, 1:]).any()):
        raise ValueError('got padding after a token; expected it on the left: tokenizer.padding_side = "left".')
    return real


def _positions(given: Tensor | None, n_rows: int, n_tokens: int, device: torch.device) -> Int[Tensor, "B T"]:
    """Return the position of each token, counted back from the newest one, because a text has no gaps."""
    last = torch.full((n_rows, 1), n_tokens - 1, device=device) if given is None else given[:, -1:].expand(n_rows, 1)
    return last - torch.arange(n_tokens - 1, -1, -1, device=device)
