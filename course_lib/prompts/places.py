"""Where the vectors of a prompt go in a batch, and what becomes of its masks and positions.

They stand right before the first real token of each row: behind padding on the left, so that padding stays on the left.

Dimension key: B rows, L tokens of a pass, P vectors, T tokens so far without the prompt, joint = P + L.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Places:
    """P vectors among L tokens, before token `at` of each row."""

    at: Int[Tensor, "B"]
    n_vectors: int
    n_tokens: int

    @property
    def order(self) -> Int[Tensor, "B joint"]:
        """Which of [vectors; tokens] stands at each place of a row."""
        place, at = torch.arange(self.n_vectors + self.n_tokens, device=self.at.device), self.at[:, None]
        before, within = place < at, place < at + self.n_vectors
        return torch.where(before, place + self.n_vectors, torch.where(within, place - at, place))

    @property
    def of_tokens(self) -> Int[Tensor, "B L"]:
        """The place of each token."""
        token = torch.arange(self.n_tokens, device=self.at.device)
        return token + self.n_vectors * (token >= self.at[:, None])

    def insert(self, vectors: Shaped[Tensor, "B P *rest"], tokens: Shaped[Tensor, "B L *rest"]) -> Tensor:
        """(B, P + L, …)"""
        return _pick(torch.cat([vectors, tokens], dim=1), self.order)

    def without(self, values: Shaped[Tensor, "B joint *rest"]) -> Tensor:
        """Those of the tokens, (B, L, …)."""
        return _pick(values, self.of_tokens)


def _pick(values: Tensor, index: Int[Tensor, "B K"]) -> Tensor:
    return values[torch.arange(len(index), device=index.device)[:, None], index]


def first_real(mask: Tensor | None, n_rows: int, device: torch.device) -> Int[Tensor, "B"]:
    """Of each row, where its first token is that is no padding: 0 without a mask, or with one over pairs of tokens."""
    if mask is None or mask.ndim == 4:
        return torch.zeros(n_rows, dtype=torch.long, device=device)
    if not bool(mask.bool().any(dim=1).all()):
        raise ValueError("got a row of nothing but padding; expected a real token in each. Leave such rows out.")
    return mask.bool().int().argmax(dim=1)


def seen_prompt(mask: Tensor | None, n_vectors: int) -> Tensor | None:
    """A mask over tokens so far, 2-D (rows, T) or 4-D (rows, 1, from, T), with columns for a prompt that all see."""
    if mask is None:
        return None
    if mask.ndim == 2:
        places = Places(first_real(mask, len(mask), mask.device), n_vectors, mask.shape[1])
        return places.insert(mask.new_ones(len(mask), n_vectors), mask)
    sees = _sees_and_not(mask)[0]
    return torch.cat([mask.new_full((*mask.shape[:3], n_vectors), sees), mask], dim=3)


def first_pass(mask: Tensor | None, n_vectors: int) -> Tensor | None:
    """The same of a pass in which the prompt itself is read: each vector sees those before it and itself."""
    wide = seen_prompt(mask, n_vectors)
    if wide is None or wide.ndim == 2:
        return wide
    sees, blocked = _sees_and_not(mask)
    causal = torch.ones(n_vectors, wide.shape[3], dtype=torch.bool, device=mask.device).tril()
    rows = mask.new_full(causal.shape, blocked).masked_fill(causal, sees)
    return torch.cat([rows.expand(len(mask), 1, -1, -1), wide], dim=2)


def _sees_and_not(mask: Tensor) -> tuple[float | bool, float | bool]:
    return (True, False) if mask.dtype == torch.bool else (0.0, torch.finfo(mask.dtype).min)


def scored(keep: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L-1"]:
    """Which tokens after the first are scored: real ones behind a real one.

    The first real token of a row is not, with a prompt before it or without: a model alone has nothing to say of it.
    """
    return keep[:, 1:] & keep[:, :-1]


def by_name(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a trunk, all of them under their names."""
    if len(args) > 1:
        raise ValueError(
            f"got {len(args)} arguments without names; expected token ids alone, and all else by its name."
        )
    return {"input_ids": args[0], **kwargs} if args else dict(kwargs)


def embeddings(given: dict[str, Any], embed: nn.Module) -> Tensor:
    """Of the tokens of a pass, (B, L, D)."""
    ids = given.pop("input_ids", None)
    return given["inputs_embeds"] if ids is None else embed(ids)
