"""What one layer's cache holds: slots of keys and values, whose tokens they are, and what a policy remembers of them.

Dimension key: B sequences, H key-value heads, N slots, C slots there is room for, Q new tokens, D size of a head,
E slots picked in each head.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.kv.vectors import FREE, PLAIN, Newest, Vectors

VECTORS = ("keys", "values")
SPARE = 64  # slots allocated ahead, so that a step of decoding writes one token instead of copying them all


@dataclass(frozen=True)
class Slots:
    """The first `n` slots of storage that may be larger.

    `position` counts the tokens of each sequence, padding left out; the order of slots says nothing. Where positions
    are to roll, `rotation` is the position at which RoPE turned the key, and `gone` how many older tokens have left.
    Heads and sequences that keep fewer tokens than others have FREE slots.

    Storage is shared between one Slots and the next: after `append` or `keep_best` use the result only.
    """

    storage: dict[str, Tensor] = field(repr=False)  # each (B, H, C) or (B, H, C, …)
    n: int
    n_seen: Int[Tensor, "B"] = field(repr=False)
    has_free: bool = False
    n_new: int = 0  # tokens of the last append, padding included
    per_head: dict[str, Tensor] = field(default_factory=dict, repr=False)  # each (B, H, …): nothing of a single slot
    vectors: Vectors = PLAIN

    @staticmethod
    def empty(keys: Float[Tensor, "B H Q D"], vectors: Vectors = PLAIN, rolling: bool = False) -> "Slots":
        """No tokens yet, of sequences and heads such as these; positions will be `rolling` or not."""
        n_sequences, n_heads, _, _ = keys.shape
        whole = torch.empty(n_sequences, n_heads, 0, dtype=torch.int32, device=keys.device)
        none = keys[:, :, :0]
        storage = vectors.pack("keys", none) | vectors.pack("values", none)
        names = ("position", "rotation", "gone") if rolling else ("position",)
        storage |= {name: whole.clone() for name in names}
        n_seen = whole.new_zeros(n_sequences, dtype=torch.int64)
        rings = {}
        if vectors.residual:
            rings = {name: keys.new_zeros(*whole.shape[:2], vectors.residual, keys.shape[3]) for name in VECTORS}
        return Slots(storage, 0, n_seen, per_head=rings, vectors=vectors)

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and key-value heads."""
        return tuple(self.storage["position"].shape[:2])

    @property
    def keys(self) -> Float[Tensor, "B H N D"]:
        return self._unpacked("keys")

    @property
    def values(self) -> Float[Tensor, "B H N D"]:
        return self._unpacked("values")

    def _unpacked(self, name: str) -> Float[Tensor, "B H N D"]:
        found = self.vectors.unpack(name, self.storage, self.n)
        if self.vectors.residual:
            found = Newest.of(self.position, self.n_seen, self.vectors.residual).over(found, self.per_head[name])
        return found

    @property
    def bytes_of_vectors(self) -> int:
        """Keys and values of the tokens that are kept."""
        parts = [tensor for name, tensor in self.storage.items() if name.startswith(VECTORS)]
        rings = sum(self.per_head[name].nbytes for name in VECTORS if name in self.per_head)
        return int(self.taken.sum()) * sum(part[0, 0, :1].nbytes for part in parts) + rings

    @property
    def bytes_unpacked(self) -> int:
        """Of one key and its value, stored as they come."""
        return 2 * self.first(1).keys[0, 0].nbytes

    @property
    def position(self) -> Int[Tensor, "B H N"]:
        return self.storage["position"][:, :, : self.n]

    @property
    def rotation(self) -> Int[Tensor, "B H N"]:
        if "rotation" not in self.storage:
            return self.position
        return self.storage["rotation"][:, :, : self.n]

    @property
    def place(self) -> Int[Tensor, "B H N"]:
        """How many tokens of the head are older: the position in a text of those that are left."""
        if "gone" not in self.storage:
            return self.position.argsort(dim=2).argsort(dim=2)
        return self.position - self.storage["gone"][:, :, : self.n]

    @property
    def taken(self) -> Bool[Tensor, "B H N"]:
        """Which slots hold a token."""
        return self.position != FREE

    def memory(self, name: str, *last: int) -> Float[Tensor, "B H N *last"]:
        """What the policy keeps of each slot under this name, float32; 0 for a token that has just come."""
        if name in self.storage:
            return self.storage[name][:, :, : self.n]
        return torch.zeros(*self.position.shape, *last, device=self.position.device)

    def first(self, n: int) -> "Slots":
        """The first slots alone, on the same storage."""
        return self if n == self.n else replace(self, n=n)

    def remembering(self, memory: dict[str, Tensor]) -> "Slots":
        """With other memory; a tensor of fewer than n slots leaves that of the others as it is."""
        storage = self.storage
        for name, values in memory.items():
            if name not in storage:
                room = (*storage["position"].shape, *values.shape[3:])
                storage = storage | {name: torch.zeros(room, device=values.device)}
            storage[name][:, :, : values.shape[2]] = values
        return self if storage is self.storage else replace(self, storage=storage)

    def noting(self, **per_head: Tensor) -> "Slots":
        """With other notes about whole heads, each (B, H, …)."""
        return replace(self, per_head=self.per_head | per_head)

    def append(
        self,
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        valid: Bool[Tensor, "B Q"],
        rotation: Int[Tensor, "B Q"],
    ) -> "Slots":
        """With new tokens behind the others; `valid` is False for padding."""
        position = torch.where(valid, self.n_seen[:, None] + valid.cumsum(dim=1) - 1, FREE)
        return self.added(keys, values, position, rotation, self.n_seen + valid.sum(dim=1), not bool(valid.all()))

    def added(
        self,
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        position: Int[Tensor, "B Q"],
        rotation: Int[Tensor, "B Q"],
        n_seen: Int[Tensor, "B"],
        has_free: bool = False,
    ) -> "Slots":
        """With new tokens behind the others. Padding takes up a FREE slot until something leaves.

        Args:
            position: in the text, FREE for padding.
            n_seen: tokens of each sequence with these.
            has_free: whether there is padding.
        """
        start, end = self.n, self.n + keys.shape[2]
        storage = self._with_room(end)
        new = self.vectors.pack("keys", keys) | self.vectors.pack("values", values)
        new |= {"position": position[:, None], "rotation": rotation[:, None]}
        if "gone" in storage:
            n_left = self.taken.sum(dim=2) if self.has_free else start
            new["gone"] = (self.n_seen[:, None] - n_left)[..., None]
        for name, tensor in storage.items():
            place = tensor.narrow(2, start, end - start)
            place.copy_(new[name]) if name in new else place.zero_()
        has_free = self.has_free or has_free
        later = replace(self, storage=storage, n=end, n_seen=n_seen, has_free=has_free, n_new=end - start)
        if self.vectors.residual:
            later._renew(later.position[:, :, start:], keys, values)
        return later

    def written(
        self, index: Int[Tensor, "B H E"], keys: Float[Tensor, "B H E D"], values: Float[Tensor, "B H E D"]
    ) -> "Slots":
        """Other keys and values in these slots; an index that occurs twice brings the same ones twice."""
        for part, tensor in (self.vectors.pack("keys", keys) | self.vectors.pack("values", values)).items():
            self.storage[part].scatter_(2, _like(index, tensor), tensor)
        if self.vectors.residual:
            self._renew(self.position.gather(2, index), keys, values)
        return self

    def _renew(
        self, position: Int[Tensor, "B H E"], keys: Float[Tensor, "B H E D"], values: Float[Tensor, "B H E D"]
    ) -> None:
        """The rings of the newest tokens, in place."""
        newest = Newest.of(position, self.n_seen, self.vectors.residual)
        newest.write(self.per_head["keys"], keys)
        newest.write(self.per_head["values"], values)

    def _with_room(self, n: int) -> dict[str, Tensor]:
        """The storage, copied to a larger one when fewer than n slots fit."""
        if n <= self.storage["position"].shape[2]:
            return self.storage
        room = max(n + SPARE, self.n + self.n // 4)
        grown = {}
        for name, tensor in self.storage.items():
            grown[name] = tensor.new_empty(*tensor.shape[:2], room, *tensor.shape[3:])
            grown[name][:, :, : self.n] = tensor[:, :, : self.n]
        return grown

    def lowest(
        self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]
    ) -> tuple[Int[Tensor, "B H E"], Bool[Tensor, "B H E"]]:
        """The slots whose tokens `keep_best` would let go; where heads lose fewer than others, the second is False."""
        score = score.masked_fill(~self.taken, float("inf"))
        n_leave = (self.taken.sum(dim=2) - sizes).clamp(min=0)
        index = score.topk(int(n_leave.max()), dim=2, largest=False).indices
        return index, torch.arange(index.shape[2], device=index.device) < n_leave[..., None]

    def keep_best(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> "Slots":
        """The `sizes[b, h]` tokens with the highest scores; what remains beside fewer tokens is FREE."""
        if self.has_free:
            score = score.masked_fill(~self.taken, float("-inf"))
        least, most = int(sizes.min()), int(sizes.max())
        if self.n == most + 1 and least == most and not self.has_free:  # a step of decoding
            return self._without_one(score)
        n = min(self.n, most)
        kept, score = self._drop(score, n) if n < self.n else (self, score)
        if least < n or self.has_free:
            smaller = sizes < kept.taken.sum(dim=2)
            if bool(smaller.any()):
                rank = score.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
                kept.position.masked_fill_(rank >= sizes[..., None], FREE)
            kept = replace(kept, has_free=bool((~kept.taken).any()))
        if "gone" in kept.storage:
            places = kept.position.argsort(dim=2).argsort(dim=2)
            kept.storage["gone"].narrow(2, 0, n).copy_(kept.position - places)
        return kept

    def _without_one(self, score: Float[Tensor, "B H N"]) -> "Slots":
        """The lowest of each head is overwritten by its last slot."""
        n, leave = self.n - 1, score.argmin(dim=2, keepdim=True)
        if "gone" in self.storage:
            position = self.position
            self.storage["gone"].narrow(2, 0, self.n).add_(position > position.gather(2, leave))
        for tensor in self.storage.values():
            tensor.scatter_(2, _like(leave, tensor), tensor.narrow(2, n, 1).clone())
        return replace(self, n=n)

    def _drop(self, score: Float[Tensor, "B H N"], n: int) -> tuple["Slots", Float[Tensor, "B H n"]]:
        """All but the lowest scores. Few that leave are overwritten in place, by survivors from behind slot n."""
        n_leave = self.n - n
        if n_leave > n:
            index = score.topk(n, dim=2).indices.sort(dim=2).values
            return self.picked(index), score.gather(2, index)
        leave = score.topk(n_leave, dim=2, largest=False).indices.sort(dim=2).values
        stays = torch.ones_like(score, dtype=torch.bool).scatter_(2, leave, False)
        survivors = n + stays[:, :, n:].int().argsort(dim=2, descending=True, stable=True)
        source = torch.where(leave < n, survivors, leave)  # one that leaves from behind slot n needs no replacement
        for tensor in self.storage.values():
            used = tensor[:, :, : self.n]
            used.scatter_(2, _like(leave, used), pick(used, source))
        return replace(self, n=n), score.scatter(2, leave, score.gather(2, source))[:, :, :n]

    def picked(self, index: Int[Tensor, "B H E"]) -> "Slots":
        """A copy of some slots in storage of their own."""
        storage = {name: pick(tensor[:, :, : self.n], index) for name, tensor in self.storage.items()}
        return replace(self, storage=storage, n=index.shape[2])

    def select(self, index: Int[Tensor, "K"]) -> "Slots":
        """Other sequences of the batch, as beam search and the like ask for."""
        storage = {name: tensor.index_select(0, index) for name, tensor in self.storage.items()}
        per_head = {name: tensor.index_select(0, index) for name, tensor in self.per_head.items()}
        return replace(self, storage=storage, n_seen=self.n_seen.index_select(0, index), per_head=per_head)


def _like(index: Int[Tensor, "B H E"], tensor: Tensor) -> Tensor:
    """The index for a gather along the slots, of a tensor with or without a last axis."""
    return index if tensor.ndim == 3 else index[..., None].expand(*index.shape, tensor.shape[3])


def pick(tensor: Tensor, index: Int[Tensor, "B H E"]) -> Tensor:
    """What a tensor (B, H, N) or (B, H, N, D) holds in these slots."""
    return tensor.gather(2, _like(index, tensor))
