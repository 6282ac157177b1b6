"""What one layer's cache holds: slots of keys and values, whose tokens they are, and what a policy remembers of them.

Dimension key: B sequences, H key-value heads, N slots, C slots there is room for, Q new tokens, D size of a head.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FREE = torch.iinfo(torch.int32).max  # position of a slot that holds no token: after every query, so nobody reads it
SPARE = 64  # slots allocated ahead, so that a step of decoding writes one token instead of copying them all


@dataclass(frozen=True)
class Slots:
    """The first `n` slots of storage that may be larger.

    `position` counts the tokens of each sequence, padding left out; the order of slots says nothing. `rotation` is the
    position at which RoPE turned the key. Heads and sequences that keep fewer tokens than others have FREE slots.

    Storage is shared between one Slots and the next: after `append` or `keep_best` use the result only.
    """

    storage: dict[str, Tensor] = field(repr=False)  # each (B, H, C) or (B, H, C, D)
    n: int
    n_seen: Int[Tensor, "B"] = field(repr=False)
    has_free: bool = False

    @staticmethod
    def empty(keys: Float[Tensor, "B H Q D"]) -> "Slots":
        """No tokens yet, of sequences and heads such as these."""
        n_sequences, n_heads, _, size = keys.shape
        whole = torch.empty(n_sequences, n_heads, 0, dtype=torch.int32, device=keys.device)
        vectors = keys.new_empty(n_sequences, n_heads, 0, size)
        storage = {"keys": vectors, "values": vectors.clone(), "position": whole, "rotation": whole.clone()}
        return Slots(storage, 0, whole.new_zeros(n_sequences, dtype=torch.int64))

    @property
    def keys(self) -> Float[Tensor, "B H N D"]:
        return self.storage["keys"][:, :, : self.n]

    @property
    def values(self) -> Float[Tensor, "B H N D"]:
        return self.storage["values"][:, :, : self.n]

    @property
    def position(self) -> Int[Tensor, "B H N"]:
        return self.storage["position"][:, :, : self.n]

    @property
    def rotation(self) -> Int[Tensor, "B H N"]:
        return self.storage["rotation"][:, :, : self.n]

    @property
    def taken(self) -> Bool[Tensor, "B H N"]:
        """Which slots hold a token."""
        return self.position != FREE

    def memory(self, name: str) -> Float[Tensor, "B H N"]:
        """What the policy keeps of each slot under this name, float32; 0 for a token that has just come."""
        return self.storage[name][:, :, : self.n] if name in self.storage else torch.zeros_like(self.position).float()

    def first(self, n: int) -> "Slots":
        """The first slots alone, on the same storage."""
        return replace(self, n=n)

    def remembering(self, memory: dict[str, Tensor]) -> "Slots":
        """With other memory; a tensor of fewer than n slots leaves that of the others as it is."""
        storage = dict(self.storage)
        for name, values in memory.items():
            if name not in storage:
                storage[name] = torch.zeros_like(storage["position"], dtype=torch.float32)
            storage[name][:, :, : values.shape[2]] = values
        return replace(self, storage=storage)

    def append(
        self,
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        valid: Bool[Tensor, "B Q"],
        rotation: Int[Tensor, "B Q"],
    ) -> "Slots":
        """With new tokens behind the others. Padding takes up a FREE slot until something leaves."""
        n_heads, start, end = keys.shape[1], self.n, self.n + keys.shape[2]
        position = torch.where(valid, self.n_seen[:, None] + valid.cumsum(dim=1) - 1, FREE)
        storage = self._with_room(end)
        new = {"keys": keys, "values": values}
        new |= {"position": _each_head(position, n_heads), "rotation": _each_head(rotation, n_heads)}
        for name, tensor in storage.items():
            tensor[:, :, start:end] = new.get(name, 0)
        n_seen = self.n_seen + valid.sum(dim=1)
        return replace(self, storage=storage, n=end, n_seen=n_seen, has_free=self.has_free or not bool(valid.all()))

    def _with_room(self, n: int) -> dict[str, Tensor]:
        """The storage, copied to a larger one when fewer than n slots fit."""
        if n <= self.storage["keys"].shape[2]:
            return dict(self.storage)
        room = max(n + SPARE, self.n + self.n // 4)
        grown = {}
        for name, tensor in self.storage.items():
            grown[name] = tensor.new_empty(*tensor.shape[:2], room, *tensor.shape[3:])
            grown[name][:, :, : self.n] = tensor[:, :, : self.n]
        return grown

    def keep_best(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "H"]) -> "Slots":
        """The `sizes[h]` tokens of head h with the highest scores; what remains beside fewer tokens is FREE."""
        score = score.masked_fill(~self.taken, float("-inf"))
        n = min(self.n, int(sizes.max()))
        if n < self.n:
            kept, score = self._drop(score, n)
        else:
            kept = self
        smaller = sizes[None, :] < kept.taken.sum(dim=2)  # (B, H)
        if bool(smaller.any()):
            rank = score.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
            kept.position.masked_fill_(rank >= sizes[:, None], FREE)
        return replace(kept, has_free=bool((~kept.taken).any())) if self.has_free or bool(smaller.any()) else kept

    def _drop(self, score: Float[Tensor, "B H N"], n: int) -> tuple["Slots", Float[Tensor, "B H n"]]:
        """All but the lowest scores. Few that leave are overwritten in place, by survivors from behind slot n."""
        n_leave = self.n - n
        if n_leave > n:
            index = score.topk(n, dim=2).indices.sort(dim=2).values
            storage = {name: _gather(tensor[:, :, : self.n], index) for name, tensor in self.storage.items()}
            return replace(self, storage=storage, n=n), score.gather(2, index)
        leave = score.topk(n_leave, dim=2, largest=False).indices.sort(dim=2).values
        stays = torch.ones_like(score, dtype=torch.bool).scatter_(2, leave, False)
        survivors = n + stays[:, :, n:].int().argsort(dim=2, descending=True, stable=True)
        source = torch.where(leave < n, survivors, leave)  # one that leaves from behind slot n needs no replacement
        for tensor in self.storage.values():
            used = tensor[:, :, : self.n]
            used.scatter_(2, _like(leave, used), _gather(used, source))
        return replace(self, n=n), score.scatter(2, leave, score.gather(2, source))[:, :, :n]

    def select(self, index: Int[Tensor, "K"]) -> "Slots":
        """Other sequences of the batch, as beam search and the like ask for."""
        storage = {name: tensor.index_select(0, index) for name, tensor in self.storage.items()}
        return replace(self, storage=storage, n_seen=self.n_seen.index_select(0, index))


def _each_head(per_token: Int[Tensor, "B Q"], n_heads: int) -> Int[Tensor, "B H Q"]:
    return per_token[:, None, :].expand(-1, n_heads, -1)


def _like(index: Int[Tensor, "B H K"], tensor: Tensor) -> Tensor:
    """The index for a gather along the slots, of a tensor with or without a last axis D."""
    return index if tensor.ndim == 3 else index[..., None].expand(*index.shape, tensor.shape[3])


def _gather(tensor: Tensor, index: Int[Tensor, "B H K"]) -> Tensor:
    return tensor.gather(2, _like(index, tensor))
