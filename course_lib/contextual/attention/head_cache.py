"""A cache without keys and values of heads that no token chose; it stores x instead. Liu and others, Deja Vu, 2023

token t, heads S_t          store k and v of the groups that S_t reads; if a group is not read, store x_t
token u > t chooses a head  whose key of token t is missing: k = R_t W_k x_t and v = W_v x_t, from the stored x_t

R_t rotates by the *old* position t (RoPE), so a key is the same whether it is computed early or late. The cache is for
one layer and one sequence and reads token by token; see `step`. https://arxiv.org/abs/2310.17157

Dimension key: H query heads, G key-value heads (groups), N tokens so far, D width, d size of a head, M missing keys.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import linear

from course_lib.contextual.attention.weights import AttentionWeights
from course_lib.kv.rotation import Rotation

Part = Literal["query", "key", "value"]


class HeadCache:
    """The cache of one layer. It computes a head's keys only when a token chooses the head, and loses no information.

    An x takes D numbers, the key and value of a group take 2 d. In OPT, where G d = D, x takes half the memory of all
    the keys and values that it replaces. With few groups it takes more: 576 numbers instead of 384 in SmolLM2.
    `n_bytes` is the memory in use.

    Attributes:
        n_late: the number of keys that were computed from an x stored by an earlier step.
    """

    def __init__(self, weights: AttentionWeights) -> None:
        self.weights, self.n_late = weights, 0
        self._rotation = Rotation(weights.frequencies)
        n_groups, size, _ = weights.key.shape
        self.keys = self.values = weights.key.new_zeros(n_groups, 0, size)  # (G, N, d); of those not made, zeros
        self.made = torch.zeros(n_groups, 0, dtype=torch.bool, device=self.keys.device)  # (G, N)
        self.stored: dict[int, Tensor] = {}  # x, by position, while any group lacks its key

    @property
    def n(self) -> int:
        """The number of tokens so far."""
        return self.made.shape[1]

    @property
    def n_bytes(self) -> int:
        """The memory of all computed keys and values and of every stored x, in bytes."""
        size, width = self.keys.shape[2], self.weights.query.shape[2]
        return (2 * size * int(self.made.sum()) + width * len(self.stored)) * self.keys.element_size()

    def step(self, x: Float[Tensor, "D"], keep: Bool[Tensor, "H"]) -> Float[Tensor, "D"]:
        """Return the output of attention for the next token, with only the heads in `keep`.

        Raises:
            ValueError: the shape of x or of `keep` does not fit the layer.
        """
        n_heads, _, width = self.weights.query.shape
        if tuple(x.shape) != (width,) or tuple(keep.shape) != (n_heads,):
            raise ValueError(
                f"got x {tuple(x.shape)} and keep {tuple(keep.shape)}; expected ({width},) and ({n_heads},): one token "
                "of one sequence at a time."
            )
        position, group = self.n, self.weights.group
        self._append(x)
        for g in keep.unflatten(0, (-1, group)).any(1).nonzero()[:, 0].tolist():
            self._make_missing(g)
        self._forget()
        # y = Σ_{h kept} W_h softmax(scaling · q_h Kᵀ) V, with the keys and values of the group of h
        total = torch.zeros_like(x) if self.weights.output_bias is None else self.weights.output_bias.clone()
        for head in keep.nonzero()[:, 0].tolist():
            query = self._projected("query", head, x[None])
            query = self._rotation.turn(query, torch.tensor([position], device=x.device))
            logits = query @ self.keys[head // group].T * self.weights.factor  # (1, N)
            read = logits.softmax(dim=1) @ self.values[head // group]
            total += self.weights.output[:, head] @ read[0]
        return total

    def _append(self, x: Float[Tensor, "D"]) -> None:
        """Add a token whose keys and values are not computed yet."""
        self.stored[self.n] = x
        room = self.keys.new_zeros(len(self.keys), 1, self.keys.shape[2])
        self.keys, self.values = torch.cat([self.keys, room], dim=1), torch.cat([self.values, room], dim=1)
        self.made = torch.cat([self.made, room[..., 0].bool()], dim=1)

    def _make_missing(self, group: int) -> None:
        """Compute the missing keys and values of a group for all tokens so far, including this one."""
        places = (~self.made[group]).nonzero()[:, 0]
        x = torch.stack([self.stored[place] for place in places.tolist()])
        self.keys[group, places] = self._rotation.turn(self._projected("key", group, x), places)
        self.values[group, places] = self._projected("value", group, x)
        self.made[group] = True
        self.n_late += len(places) - 1

    def _forget(self) -> None:
        """Delete each x for which every group has its key."""
        for place in [place for place in self.stored if bool(self.made[:, place].all())]:
            del self.stored[place]

    def _projected(self, part: Part, index: int, x: Float[Tensor, "M D"]) -> Float[Tensor, "M d"]:
        """Return the queries of a head, or the keys or values of a group."""
        bias = getattr(self.weights, f"{part}_bias")
        return linear(x, getattr(self.weights, part)[index], None if bias is None else bias[index])
