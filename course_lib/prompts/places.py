"""Positions of a prompt's vectors in a batch, and the attention masks that include them.

The vectors directly precede the first real token of each row. Left padding therefore stays to the left of the prompt:
[pad pad x1 x2] becomes [pad pad p1 … pP x1 x2].

Dimension key: B rows, L tokens of a pass, P vectors, T tokens so far without the prompt, joint = P + L.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of P vectors and L tokens in the joint sequence: the vectors precede token `at` of each row."""

    at: Int[Tensor, "B"]
    n_vectors: int
    n_tokens: int

    @property
    def order(self) -> Int[Tensor, "B joint"]:
        """Index into [vectors; tokens] (P + L entries) for each position j of the joint sequence."""
        place, at = torch.arange(self.n_vectors + self.n_tokens, device=self.at.device), self.at[:, None]
        is_before, is_before_text = place < at, place < at + self.n_vectors
        # j < at: token j, at index j + P;  at ≤ j < at + P: vector j − at;  otherwise token j − P, at index j.
        return torch.where(is_before, place + self.n_vectors, torch.where(is_before_text, place - at, place))

    @property
    def of_tokens(self) -> Int[Tensor, "B L"]:
        """Position of each token in the joint sequence: i before token `at`, i + P from there on."""
        token = torch.arange(self.n_tokens, device=self.at.device)
        return token + self.n_vectors * (token >= self.at[:, None])

    def insert(self, vectors: Shaped[Tensor, "B P *rest"], tokens: Shaped[Tensor, "B L *rest"]) -> Tensor:
        """Insert the vectors. Returns the joint sequence (B, P + L, …)."""
        return _pick(torch.cat([vectors, tokens], dim=1), self.order)

    def without(self, values: Shaped[Tensor, "B joint *rest"]) -> Tensor:
        """Remove the vectors. Returns the values of the tokens, (B, L, …)."""
        return _pick(values, self.of_tokens)


def _pick(values: Tensor, index: Int[Tensor, "B K"]) -> Tensor:
    return values[torch.arange(len(index), device=index.device)[:, None], index]


def first_real(mask: Tensor | None, n_rows: int, device: torch.device) -> Int[Tensor, "B"]:
    """Return the index of each row's first real token. Without a mask, or with a 4-D mask, it is 0."""
    if mask is None or mask.ndim == 4:
        return torch.zeros(n_rows, dtype=torch.long, device=device)
    if not bool(mask.bool().any(dim=1).all()):
        raise ValueError("got a row of padding alone; expected at least one real token per row. Remove such rows.")
    return mask.bool().int().argmax(dim=1)


def seen_prompt(mask: Tensor | None, n_vectors: int) -> Tensor | None:
    """Extend an attention mask by columns for the prompt, to which every token attends.

    Args:
        mask: 2-D (rows, T) or 4-D (rows, 1, queries, T), over the tokens so far.
    """
    if mask is None:
        return None
    if mask.ndim == 2:
        places = Places(first_real(mask, len(mask), mask.device), n_vectors, mask.shape[1])
        return places.insert(mask.new_ones(len(mask), n_vectors), mask)
    visible = _sees_and_not(mask)[0]
    return torch.cat([mask.new_full((*mask.shape[:3], n_vectors), visible), mask], dim=3)  # (rows, 1, queries, P + T)


def first_pass(mask: Tensor | None, n_vectors: int) -> Tensor | None:
    """Extend a mask for the pass that processes the prompt itself.

    A 4-D mask gets rows for the vectors as well, in which each vector attends to itself and to the earlier vectors.
    """
    extended = seen_prompt(mask, n_vectors)
    if extended is None or extended.ndim == 2:
        return extended
    visible, blocked = _sees_and_not(mask)
    causal = torch.ones(n_vectors, extended.shape[3], dtype=torch.bool, device=mask.device).tril()  # (P, P + T)
    rows = mask.new_full(causal.shape, blocked).masked_fill(causal, visible)
    # (rows, 1, P + queries, P + T)
    return torch.cat([rows.expand(len(mask), 1, -1, -1), extended], dim=2)


def _sees_and_not(mask: Tensor) -> tuple[float | bool, float | bool]:
    """Values of a 4-D mask for visible and blocked pairs: booleans, or terms that are added to the attention scores."""
    return (True, False) if mask.dtype == torch.bool else (0.0, torch.finfo(mask.dtype).min)


def scored(keep: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L-1"]:
    """Return which tokens after the first are scored: real tokens that follow a real token.

    The first real token of a row is never scored, because a model without a prompt makes no prediction for it.
    """
    return keep[:, 1:] & keep[:, :-1]


def by_name(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the trunk's forward by name. Raise ValueError for more than one positional argument."""
    if len(args) > 1:
        raise ValueError(
            f"got {len(args)} positional arguments; expected the token ids alone. Pass all others by name."
        )
    return {"input_ids": args[0], **kwargs} if args else dict(kwargs)


def embeddings(given: dict[str, Any], embed: nn.Module) -> Tensor:
    """Return the token embeddings of a pass, (B, L, D), and remove the token ids from its arguments."""
    ids = given.pop("input_ids", None)
    return given["inputs_embeds"] if ids is None else embed(ids)
